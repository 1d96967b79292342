// A save that ends or fails at each of its system calls.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/store/find.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/checkpoint/store/verify.h"
#include "tests/support/disturbed_calls.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/checkpoint/store/a_checkpoint.h"

// A file system that cannot have two folders change places, as NFS: in the place of libc's for all that is linked into
// this program.
namespace {
bool exchanges = true;
}

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  if (!exchanges && flags != 0) {
    errno = EINVAL;
    return -1;
  }
  return int(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

namespace lockstep::checkpoint {
namespace {

using lockstep::support::CallKind;
using lockstep::support::Disturbed;
using lockstep::support::with_disturbed_call;
using lockstep::testing::ScratchFolder;
using ::testing::IsEmpty;

// In memory: a thousand saves are synced, and it is their order that is looked at, not the disk.
class WriteDisturbed : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("TMPDIR", "/dev/shm", 1); }
  static void TearDownTestSuite() { unsetenv("TMPDIR"); }
  void TearDown() override { exchanges = true; }
};

// The body returns 0, 1 for what write_checkpoint() throws, 2 for anything else.
int save(const std::string& folder, std::uint64_t step) {
  try {
    testing::write_step(folder, step, {.keep = 1}, double(step));
    return 0;
  } catch (const Error&) {
    return 1;
  } catch (...) {
    return 2;
  }
}

// What holds after a disturbed save of step 2 over one of step 1, or of step 2 once more; then saving goes on.
void expect_whole(const ScratchFolder& folder, bool saved) {
  const std::optional<Found> found = find(folder.path());
  ASSERT_TRUE(found);
  EXPECT_THAT(found->skipped, IsEmpty());
  for (const std::uint64_t step : steps_in(folder.path()))
    EXPECT_THAT(verify(folder.file(step_name(step))), IsEmpty()) << step;
  EXPECT_TRUE(!saved || found->step == 2u);
  EXPECT_EQ(save(folder.path(), 3), 0);
  EXPECT_EQ(find(folder.path())->step, 3u);
  EXPECT_EQ(folder.entries(), 3u) << "the step and its links; nothing aside is left";
}

// Calls `disturb` with 1, 2, ... until the save makes no more calls; returns how many it made.
int at_each_call(CallKind kind, int error, std::uint64_t before, const std::function<void(const Disturbed&)>& look) {
  for (int count = 1;; ++count) {
    const ScratchFolder folder;
    testing::write_step(folder.path(), before, {}, 0.5);
    const Disturbed outcome = with_disturbed_call(kind, count, error, [&] { return save(folder.path(), 2); });
    SCOPED_TRACE("call " + std::to_string(count) + ", number " + std::to_string(outcome.number));
    look(outcome);
    expect_whole(folder, outcome.code == 0);
    if (!outcome.reached || ::testing::Test::HasFailure()) return count - 1;
  }
}

TEST_F(WriteDisturbed, KilledAtEachSystemCallItLeavesTheOldOrTheNewOne) {
  for (const std::uint64_t before : {1, 2}) {
    const int calls = at_each_call(
        CallKind::any, 0, before, [](const Disturbed& outcome) { EXPECT_EQ(outcome.code, outcome.reached ? 137 : 0); });
    EXPECT_GT(calls, 50);
    std::cout << "killed at each of " << calls << " calls\n";
  }
}

// The same step twice, and no other checkpoint is there.
TEST_F(WriteDisturbed, KilledWhereFoldersCannotChangePlacesItLeavesTheOldOrTheNewOne) {
  exchanges = false;
  const int calls = at_each_call(CallKind::any, 0, 2,
                                 [](const Disturbed& outcome) { EXPECT_EQ(outcome.code, outcome.reached ? 137 : 0); });
  EXPECT_GT(calls, 50);
}

// Who is asked for one by its name, or for the best, does not read the whole folder first.
TEST_F(WriteDisturbed, WhatWasAboutToBeReplacedIsFoundByEachOfItsNames) {
  const ScratchFolder folder;
  const std::string path = testing::write_step(folder.path(), 2, {}, 0.5);
  for (const std::string& which : {std::string("auto"), std::string("best"), path, folder.file("last")}) {
    std::filesystem::rename(path, folder.file(".old-step-00000002"));
    EXPECT_EQ(find(folder.path(), which)->step, 2u) << which;
    EXPECT_EQ(folder.entries(), 3u) << "the step and its links";
  }
}

TEST_F(WriteDisturbed, ACallThatTheDiskRefusesIsAnErrorAndLeavesAWholeOne) {
  const auto refuse_each = [](int error, std::uint64_t before) {
    int refused = 0;
    const int calls = at_each_call(CallKind::of_files, error, before, [&](const Disturbed& outcome) {
      EXPECT_LE(outcome.code, 1);
      refused += outcome.code;
    });
    EXPECT_GT(calls, 40);
    EXPECT_GT(refused, calls / 3) << "what fails is told";
    std::cout << refused << " of " << calls << " refused calls were told\n";
  };
  for (const int error : {ENOSPC, EIO}) refuse_each(error, 1);
  exchanges = false;
  refuse_each(EIO, 2);
}

}  // namespace
}  // namespace lockstep::checkpoint
