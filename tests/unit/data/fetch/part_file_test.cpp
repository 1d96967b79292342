#include "lockstep/data/fetch/part_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;
using testing::read_file;

constexpr std::chrono::seconds kLong{30};
constexpr std::chrono::milliseconds kShort{50};

TEST(PartFile, GoesOnWithWhatIsThere) {
  const testing::ScratchFolder folder;
  const std::string target = folder.file("a");
  PartFile(target, kLong).append("one ", 4);
  PartFile part(target, kLong);
  EXPECT_EQ(part.size(), 4u);
  part.append("two", 3);
  EXPECT_FALSE(std::filesystem::exists(target));
  part.become_target();
  EXPECT_EQ(read_file(target), "one two");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(PartFile, CanBeBegunAnew) {
  const testing::ScratchFolder folder;
  PartFile part(folder.file("a"), kLong);
  part.append("wrong", 5);
  part.restart();
  part.append("right", 5);
  EXPECT_EQ(part.size(), 5u);
  EXPECT_EQ(read_file(part.path()), "right");
}

TEST(PartFile, LeavesNothingWhenNothingCame) {
  const testing::ScratchFolder folder;
  { PartFile part(folder.file("a"), kLong); }
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(PartFile, IsOneProcessesAtATime) {
  const testing::ScratchFolder folder;
  const std::string target = folder.file("a");
  const PartFile first(target, kLong);
  try {
    PartFile second(target, kShort);
    ADD_FAILURE() << "two have it";
  } catch (const UsageError&) {
    ADD_FAILURE() << "a UsageError";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'" + target + ".part' is held by another process"));
  }
}

TEST(PartFile, IsWaitedForAndLookedUpAgain) {
  const testing::ScratchFolder folder;
  const std::string target = folder.file("a");
  std::optional<PartFile> first(std::in_place, target, kLong);
  first->append("all", 3);
  std::jthread finisher([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    first->become_target();
  });
  PartFile second(target, kLong);
  EXPECT_EQ(second.size(), 0u) << "this would be the file that has become the target";
  EXPECT_EQ(read_file(target), "all");
}

TEST(PartFile, MustBeAFile) {
  const testing::ScratchFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("a.part").c_str(), 0600), 0);
  EXPECT_THAT(testing::usage_error([&] { PartFile(folder.file("a"), kShort); }), HasSubstr("not a regular file"));
  EXPECT_THAT(testing::usage_error([&] { PartFile(folder.file("no/a"), kShort); }), HasSubstr("cannot write '"));
}

}  // namespace
}  // namespace lockstep::data
