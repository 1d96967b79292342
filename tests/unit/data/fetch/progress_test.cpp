#include "lockstep/data/fetch/progress.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "lockstep/base/unique_fd.h"

namespace lockstep::data {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

TEST(Bar, ShowsHowMuchIsThere) {
  EXPECT_EQ(bar_text("a.gz", 0, 4 * kMiB, 0), "a.gz  [--------------------]    0 %  0 B of 4.0 MiB");
  EXPECT_EQ(bar_text("a.gz", kMiB, 4 * kMiB, 0), "a.gz  [#####---------------]   25 %  1.0 MiB of 4.0 MiB");
  EXPECT_EQ(bar_text("a.gz", 4 * kMiB, 4 * kMiB, 0), "a.gz  [####################]  100 %  4.0 MiB of 4.0 MiB");
}

TEST(Bar, FitsTheTerminal) { EXPECT_EQ(bar_text("a.gz", kMiB, 4 * kMiB, 10), "a.gz  [##"); }

// What comes until it is as long as `expected`: a terminal's kernel hands bytes on in pieces, some a little later.
void expect_written(int fd, const std::string& expected) {
  std::string text;
  pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
  while (text.size() < expected.size() && ::poll(&ready, 1, 10'000) == 1) {
    char piece[4096];
    const ssize_t got = ::read(fd, piece, sizeof piece);
    if (got <= 0) break;
    text.append(piece, std::size_t(got));
  }
  EXPECT_EQ(text, expected);
}

TEST(DownloadProgress, WritesALinePerTenthIntoAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const base::UniqueFd out(ends[0]), in(ends[1]);
  DownloadProgress progress(in.get());
  progress.begin("a.gz", "https://mirror/a.gz", 0, 1000);
  for (const std::uint64_t done : {10, 90, 120, 180, 1000}) progress.advance(done);
  progress.begin("b.gz", "https://mirror/b.gz", 500, 1000);
  progress.advance(550);
  expect_written(out.get(),
                 "a.gz: 1000 B from https://mirror/a.gz\na.gz: 10 %\na.gz: 100 %\n"
                 "b.gz: 1000 B from https://mirror/b.gz, going on after 500 B\n");
}

TEST(DownloadProgress, RewritesItsLineOnATerminal) {
  int master = -1, slave = -1;
  ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
  const base::UniqueFd screen(master), terminal(slave);
  DownloadProgress progress(terminal.get());
  progress.begin("a.gz", "https://mirror/a.gz", 0, 1000);
  progress.advance(250);
  progress.advance(1000);
  progress.say("a.gz: unpacking");
  expect_written(screen.get(),
                 "a.gz: 1000 B from https://mirror/a.gz\r\n"
                 "\ra.gz  [#####---------------]   25 %  250 B of 1000 B\x1b[K"
                 "\ra.gz  [####################]  100 %  1000 B of 1000 B\x1b[K\r\n"
                 "a.gz: unpacking\r\n");
}

TEST(DownloadProgress, CanBeQuiet) {
  DownloadProgress progress(-1);
  progress.begin("a.gz", "https://mirror/a.gz", 0, 1000);
  progress.advance(1000);
}

}  // namespace
}  // namespace lockstep::data
