// The lock of a folder of checkpoints, as those who save there have it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/checkpoint.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "tests/support/other_saver.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_job.h"
#include "tests/support/usage_error.h"

namespace lockstep::checkpoint {
namespace {

using support::RankKind;
using support::run_ranks;
using support::SmallNet;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ScratchFolder;

// A job of one rank that holds its folder.
struct HoldingJob {
  HoldingJob(const std::shared_ptr<comm::Group>& group, const std::string& folder)
      : ddp(SmallNet(), group), saver(folder, ddp), optimizer(ddp) {}
  DistributedDataParallel<SmallNet> ddp;
  BackgroundSaver saver;
  optim::SGD optimizer;
};

TEST(Save, AFolderInWhichAnotherProgramSavesIsRefused) {
  const ScratchFolder folder;
  const testing::OtherSaver other(folder.path());
  run_ranks(RankKind::single, 1, [&](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp);
    EXPECT_THAT(testing::usage_error([&] { save(folder.path(), ddp); }), HasSubstr("another program that is running"));
    EXPECT_THAT(steps_in(folder.path()), IsEmpty());
  });
}

// Before a checkpoint is chosen there: the other program's next ones would be behind it.
TEST(BackgroundSaving, AFolderInWhichAnotherProgramSavesIsRefused) {
  const ScratchFolder folder;
  const testing::OtherSaver other(folder.path());
  run_ranks(RankKind::single, 1, [&](auto group) {
    EXPECT_THAT(testing::usage_error([&] { HoldingJob job(group, folder.path()); }),
                HasSubstr("another program that is running"));
    EXPECT_THAT(steps_in(folder.path()), IsEmpty());
  });
}

// Where the folder was made anew, by a program that is about to end: the look waits for its end, and no step does.
TEST(BackgroundSaving, TheFolderIsLookedAtBesideTheSteps) {
  const ScratchFolder folder;
  const std::string checkpoints = folder.file("a");
  run_ranks(RankKind::single, 1, [&](auto group) {
    HoldingJob job(group, checkpoints);
    std::filesystem::remove_all(checkpoints);
    testing::OtherSaver other(checkpoints);
    EXPECT_TRUE(job.saver.save());
    other.kill();
    EXPECT_EQ(job.saver.wait().problem, "");
    EXPECT_THAT(steps_in(checkpoints), ElementsAre(0u));
  });
}

TEST(BackgroundSaving, ThatAnotherProgramHasTakenTheFolderIsHeardBehindTheSave) {
  const ScratchFolder folder;
  const std::string checkpoints = folder.file("a");
  run_ranks(RankKind::single, 1, [&](auto group) {
    HoldingJob job(group, checkpoints);
    std::filesystem::remove_all(checkpoints);
    const testing::OtherSaver other(checkpoints);
    EXPECT_TRUE(job.saver.save());
    EXPECT_THAT(testing::usage_error([&] { job.saver.wait(); }), HasSubstr("another program that is running"));
    EXPECT_THAT(steps_in(checkpoints), IsEmpty());
  });
}

}  // namespace
}  // namespace lockstep::checkpoint
