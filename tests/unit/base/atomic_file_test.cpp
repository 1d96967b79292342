#include "lockstep/base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "lockstep/base/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::base {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;
using testing::usage_error;

TEST(AtomicFile, AppearsWithItsContentOnCommit) {
  const ScratchFolder folder;
  const std::string path = folder.file("out");
  {
    AtomicFile file(path);
    file.write("hello ", 6);
    file.write("world", 5);
    EXPECT_FALSE(std::filesystem::exists(path));
    file.commit();
  }
  EXPECT_EQ(read_file(path), "hello world");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(AtomicFile, WithoutCommitTheOldFileStaysAndNothingElse) {
  const ScratchFolder folder;
  const std::string path = folder.write("out", "old");
  {
    AtomicFile file(path);
    file.write("new", 3);
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(AtomicFile, TwoWritersOfOnePathDoNotMix) {
  const ScratchFolder folder;
  const std::string path = folder.file("out");
  AtomicFile first(path), second(path);
  first.write("first", 5);
  second.write("second", 6);
  second.commit();
  first.commit();
  EXPECT_EQ(read_file(path), "first");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(AtomicFile, RefusesTargetsThatCannotBeWritten) {
  const ScratchFolder folder;
  const std::string missing = folder.file("no/such/file");
  EXPECT_THAT(usage_error([&] { AtomicFile file(missing); }), HasSubstr("'" + missing + "': No such file"));
  EXPECT_THAT(usage_error([&] { AtomicFile file(folder.path()); }), HasSubstr("a file name is needed"));
  EXPECT_THAT(usage_error([&] { AtomicFile file(folder.path() + "/"); }), HasSubstr("a file name is needed"));
  EXPECT_THAT(usage_error([&] { AtomicFile file(""); }), HasSubstr("a file name is needed"));
  EXPECT_EQ(folder.entries(), 0u);
}

// A file size limit stands in for a full disk.
TEST(AtomicFile, AFullDiskIsAnErrorAndLeavesNothing) {
  const ScratchFolder folder;
  const std::string path = folder.write("out", "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  {
    AtomicFile file(path);
    const std::string much(5000, 'x');
    EXPECT_THROW(file.write(much.data(), much.size()), Error);
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

}  // namespace
}  // namespace lockstep::base
