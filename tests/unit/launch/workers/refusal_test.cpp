#include "lockstep/launch/workers/refusal.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace lockstep::launch {
namespace {

TEST(Refusal, SaysWhatAShellWould) {
  const Refusal missing = cannot_execute("no-such-program", ENOENT);
  EXPECT_EQ(missing.code, kExitNotFound);
  EXPECT_EQ(missing.text, "cannot execute 'no-such-program': No such file or directory in PATH");
  const Refusal forbidden = cannot_execute("/etc/passwd", EACCES);
  EXPECT_EQ(forbidden.code, kExitNotExecutable);
  EXPECT_EQ(forbidden.text, "cannot execute '/etc/passwd': Permission denied");
  EXPECT_EQ(cannot_execute("/etc/passwd/x", ENOTDIR).code, kExitNotFound);
}

TEST(Refusal, OfAScriptIsAboutItsInterpreter) {
  EXPECT_EQ(cannot_execute("/etc/passwd", ENOENT).text,
            "cannot execute '/etc/passwd': No such file or directory (the interpreter in its first line is missing)");
  EXPECT_EQ(cannot_execute("/no/such", ENOENT).text, "cannot execute '/no/such': No such file or directory");
}

TEST(Refusal, OfAScriptThatCannotBeRead) {
  EXPECT_EQ(cannot_read("train.py", ENOENT).code, kExitNotFound);
  EXPECT_EQ(cannot_read("train.py", EACCES).code, kExitNotExecutable);
  EXPECT_EQ(cannot_read("train.py", EACCES).text, "cannot read 'train.py': Permission denied");
}

}  // namespace
}  // namespace lockstep::launch
