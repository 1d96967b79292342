// A Trainer whose attempt ends before its time, mostly as its job makes room for another node, and the next attempt.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/generation.h"
#include "lockstep/base/room.h"
#include "lockstep/base/segment.h"
#include "lockstep/comm/shm/shm_group.h"
#include "tests/support/machines.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/train/trainer_parts.h"

namespace lockstep::train {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;

// Of a run of 6 steps, each attempt of which is this process.
class TrainerRoom : public ::testing::Test {
 protected:
  Group join() const { return std::make_shared<comm::ShmGroup>(base::Segment::open(segment_.path(), 1), 0); }

  // Ends behind the step after `asked`, in which the rank hears of it.
  void leave(TrainerOptions options, std::uint64_t asked, TrainerObserver observer = {}) {
    const Group group = join();
    Parts parts(group);
    Trainer trainer(parts.ddp, parts.loader, std::move(options));
    trainer.add({.after_step = [&](const Standing& now) {
      if (now.step == asked) {
        EXPECT_TRUE(base::ask_for_room(group->node().member.page()));
      }
    }});
    trainer.add(std::move(observer));
    EXPECT_THROW(parts.run(trainer), GroupAborted);
    EXPECT_EQ(parts.ddp.steps(), asked + 1);
  }
  void begin_next() { segment_ = base::next_generation(std::move(segment_), 1); }

  const testing::ScratchFolder folder_;
  base::Segment segment_ = base::Segment::create(1);
};

TEST_F(TrainerRoom, WhatFellDueBehindTheStepThatIsLeftIsSavedByTheNextAttempt) {
  const TrainerOptions options{.epochs = 2, .checkpoints = folder_.path(), .save_every = 4};
  leave(options, 3);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("step-00000004")));
  begin_next();
  std::vector<std::string> saved;
  Parts parts(join());
  Trainer trainer(parts.ddp, parts.loader, options);
  trainer.add({.after_checkpoint = [&](const Standing&, const std::string& path) { saved.push_back(path); }});
  EXPECT_EQ(parts.run(trainer).steps, 6u);
  EXPECT_THAT(saved, ElementsAre(EndsWith("step-00000004"), EndsWith("step-00000006")));
}

TEST_F(TrainerRoom, IsToldToNobodyAsAFailure) {
  int failures = 0;
  leave({.epochs = 2}, 1, {.failed = [&](const Standing&, const std::exception&) { ++failures; }});
  EXPECT_EQ(failures, 0);
}

TEST_F(TrainerRoom, WhatIsThereIsNotSavedAgain) {
  TrainerOptions options{.epochs = 2, .max_steps = 4, .checkpoints = folder_.path(), .save_every = 4};
  {
    Parts parts(join());
    Trainer trainer(parts.ddp, parts.loader, options);
    parts.run(trainer);
  }
  ASSERT_TRUE(std::filesystem::exists(folder_.file("step-00000004")));
  begin_next();
  options.max_steps.reset();
  std::vector<std::string> saved;
  Parts parts(join());
  Trainer trainer(parts.ddp, parts.loader, options);
  trainer.add({.after_checkpoint = [&](const Standing&, const std::string& path) { saved.push_back(path); }});
  EXPECT_EQ(parts.run(trainer).steps, 6u);
  EXPECT_THAT(saved, ElementsAre(EndsWith("step-00000006")));
}

// Rank 0 alone knows that it is not there, and all have to do with a save of shares.
TEST(TrainerShares, WhatFellDueWhereAnAttemptEndedIsSavedByAllNodes) {
  const testing::ScratchFolder folder;
  const TrainerOptions options{.epochs = 2, .checkpoints = folder.path(), .save_every = 4};
  support::Machines machines({1, 1});
  const auto end_early = [&](const Group& group) {
    Parts parts(group, /*zero1=*/true);
    Trainer trainer(parts.ddp, parts.loader, options);
    trainer.add({.after_step = [&](const Standing& now) {
      if (now.step < 4) return;
      group->barrier();  // all have made it
      throw Error("no more time");
    }});
    try {
      parts.run(trainer);
    } catch (const Error& error) {
      return std::string(error.what()) == "no more time" ? 0 : 3;
    }
    return 4;
  };
  EXPECT_THAT(machines.run(end_early), Each(0));
  EXPECT_FALSE(std::filesystem::exists(folder.file("step-00000004")));
  const auto go_on = [&](const Group& group) {
    Parts parts(group, /*zero1=*/true);
    Trainer trainer(parts.ddp, parts.loader, options);
    return parts.run(trainer).steps == 6 ? 0 : 3;
  };
  EXPECT_THAT(machines.run(go_on), Each(0));
  EXPECT_TRUE(std::filesystem::exists(folder.file("step-00000004")));
  EXPECT_TRUE(std::filesystem::exists(folder.file("step-00000006")));
}

}  // namespace
}  // namespace lockstep::train
