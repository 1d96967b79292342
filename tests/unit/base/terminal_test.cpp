#include "lockstep/base/terminal.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include "tests/support/terminal.h"

namespace lockstep::base {
namespace {

TEST(TerminalColumns, AreThoseOfTheTerminal) {
  const testing::Terminal terminal;
  const winsize size{.ws_row = 50, .ws_col = 72};
  ASSERT_EQ(ioctl(terminal.screen(), TIOCSWINSZ, &size), 0);
  EXPECT_EQ(terminal_columns(terminal.screen()), 72);
}

TEST(TerminalColumns, NoneWithoutOne) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(terminal_columns(ends[0]), 0);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(terminal_columns(-1), 0);
}

}  // namespace
}  // namespace lockstep::base
