// A Trainer goes on from its checkpoints, whatever has ended the start before: nothing is lost, and nothing is done
// that an undisturbed run would not have done.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <semaphore>

#include "lockstep/checkpoint/store/state_json.h"
#include "lockstep/evaluation/pass.h"
#include "lockstep/train/trainer_observers.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/train/before_fsync.h"
#include "tests/unit/train/trainer_parts.h"

namespace lockstep::train {
namespace {

using support::RankKind;
using support::run_ranks;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Trainer, GoesOnFromItsCheckpoints) {
  const std::string expected = weights_of_own_loop();
  const testing::ScratchFolder folder;
  const std::string checkpoints = folder.file("checkpoints");
  std::vector<std::string> saved;
  run_ranks(RankKind::single, 1, [&](const Group& group) {
    Parts parts(group);
    Trainer trainer(parts.ddp, parts.loader,
                    {.epochs = 2, .max_steps = 4, .checkpoints = checkpoints, .save_every = 3});
    trainer.add({.after_checkpoint = [&](const Standing&, const std::string& path) { saved.push_back(path); }});
    parts.run(trainer);
  });
  EXPECT_THAT(saved, ElementsAre(EndsWith("step-00000003"), EndsWith("step-00000004")));
  run_ranks(RankKind::single, 1, [&](const Group& group) {
    Parts parts(group);
    Trainer trainer(parts.ddp, parts.loader, {.epochs = 2, .checkpoints = checkpoints});
    int told = 0;
    trainer.add({.before_step = [&](const Standing&) { ++told; }});
    EXPECT_EQ(parts.run(trainer).steps, 6u);
    EXPECT_EQ(told, 2) << "steps 5 and 6";
    EXPECT_EQ(parts.ddp.weights_hash(), expected);
  });
}

std::binary_semaphore disk_goes_on{0};

// Steps go on beside a save that takes long; that of the last one waits for it.
TEST(Trainer, ASaveThatTakesLongLeavesOutThoseThatFallDue) {
  const testing::ScratchFolder folder;
  std::vector<std::string> saved;
  before_fsync = [] {
    before_fsync = nullptr;
    disk_goes_on.try_acquire_for(std::chrono::minutes(1));
  };
  run_ranks(RankKind::single, 1, [&](const Group& group) {
    Parts parts(group);
    Trainer trainer(parts.ddp, parts.loader, {.epochs = 2, .checkpoints = folder.path(), .save_every = 1});
    trainer.add({.after_step =
                     [&](const Standing& now) {
                       if (now.step == 6) disk_goes_on.release();
                     },
                 .after_checkpoint = [&](const Standing&, const std::string& path) { saved.push_back(path); }});
    const TrainerEnd end = parts.run(trainer);
    EXPECT_GE(end.skipped, 4u) << "those of steps 2 to 5";
    EXPECT_EQ(int(end), kExitDone);
  });
  EXPECT_THAT(saved, ElementsAre(EndsWith("step-00000001"), EndsWith("step-00000006")));
}

// Else the best one might be none that is saved.
TEST(Trainer, WhatAnEvaluationHasFoundWaitsForASaveThatTakesLong) {
  const testing::ScratchFolder folder;
  before_fsync = [] {
    before_fsync = nullptr;
    disk_goes_on.try_acquire_for(std::chrono::milliseconds(500));
  };
  run_ranks(RankKind::single, 1, [&](const Group& group) {
    Parts parts(group);
    double loss = 0;
    const auto evaluate = [&] { return Found{{"loss", ++loss}}; };
    Trainer trainer(parts.ddp, parts.loader,
                    {.epochs = 2,
                     .evaluate = evaluate,
                     .checkpoints = folder.path(),
                     .save_every = 2,
                     .retention = {.smaller_is_better = true},
                     .monitor = "loss"});
    parts.run(trainer);
  });
  EXPECT_EQ(checkpoint::read_state(folder.file("step-00000003")).metric, 1);
  EXPECT_EQ(std::filesystem::read_symlink(folder.file("best")), "step-00000003");
}

// Longer than any rank waits for another one.
TEST(Trainer, ALastSaveThatTakesLongerThanTheTimeoutIsNoFailure) {
  const testing::ScratchFolder folder;
  static const auto stand_still = [] {
    before_fsync = nullptr;
    disk_goes_on.try_acquire_for(std::chrono::milliseconds(4500));
  };
  run_ranks(RankKind::threads, 2,
            [&](const Group& group) {
              Parts parts(group);
              Trainer trainer(parts.ddp, parts.loader,
                              {.epochs = 1, .checkpoints = folder.path(), .save_every = 100, .stop_on = {}});
              if (group->rank() == 0) before_fsync = stand_still;  // the folder's lock is on disk
              EXPECT_EQ(parts.run(trainer).unsaved, "");
              group->barrier();
            },
            {.timeout = std::chrono::milliseconds(3000)});
  EXPECT_EQ(std::filesystem::read_symlink(folder.file("last")), "step-00000003");
}

// They would be told every second that rank 0 is late, and ask it for its stack.
TEST(Trainer, ThatALastSaveIsWaitedForIsNoStall) {
  const testing::ScratchFolder folder;
  static const auto stand_still = [] {
    before_fsync = nullptr;
    disk_goes_on.try_acquire_for(std::chrono::milliseconds(2500));
  };
  ::testing::internal::CaptureStderr();
  run_ranks(RankKind::threads, 2, [&](const Group& group) {
    Parts parts(group);
    checkpoint::BackgroundSaver saver(folder.path(), parts.ddp);
    optim::SGD optimizer(parts.ddp, {.lr = 0.1});
    if (group->rank() == 0) before_fsync = stand_still;  // the folder's lock is on disk
    group->barrier();
    group->node().member.set_stall_warning(std::chrono::milliseconds(900));  // less than the longest turn
    saver.save();
    EXPECT_EQ(saver.wait_together().problem, "");
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("has waited")));
  EXPECT_EQ(before_fsync, nullptr) << "the save stood still";
  EXPECT_TRUE(std::filesystem::exists(folder.file("last")));
}

// The other ranks wait for who waits for a disk.
TEST(Trainer, ASaveIsWaitedForNoLongerThanWanted) {
  const testing::ScratchFolder folder;
  run_ranks(RankKind::single, 1, [&](const Group& group) {
    Parts parts(group);
    checkpoint::BackgroundSaver saver(folder.path(), parts.ddp);
    optim::SGD optimizer(parts.ddp, {.lr = 0.1});
    before_fsync = [] {  // the folder's lock is on disk
      before_fsync = nullptr;
      disk_goes_on.try_acquire_for(std::chrono::seconds(60));
    };
    saver.save();
    EXPECT_FALSE(saver.wait_for(std::chrono::milliseconds(20)));
    disk_goes_on.release();
    EXPECT_TRUE(saver.wait_for(std::chrono::seconds(60)));
    EXPECT_EQ(saver.wait().problem, "");
  });
  EXPECT_TRUE(std::filesystem::exists(folder.file("last")));
}

// What observers keep is committed behind the evaluation, and with it that the epoch was passed.
TEST(Trainer, GoesOnFromTheEndOfAnEpoch) {
  const testing::ScratchFolder folder;
  std::string hash;
  for (const std::int64_t epochs : {1, 2})
    run_ranks(RankKind::single, 1, [&](const Group& group) {
      Parts parts(group);
      int evaluations = 0;
      Trainer trainer(parts.ddp, parts.loader,
                      {.epochs = epochs,
                       .evaluate =
                           [&] {
                             ++evaluations;
                             return Found{{"loss", 1}};
                           },
                       .checkpoints = folder.file("checkpoints")});
      trainer.add(early_stopping({.patience = 9}));
      EXPECT_EQ(parts.run(trainer).steps, std::uint64_t(3 * epochs));
      EXPECT_EQ(evaluations, 1);
      hash = parts.ddp.weights_hash();
    });
  EXPECT_EQ(hash, weights_of_own_loop());
}

// A file stands where the folder was.
TEST(Trainer, ASignalWithoutASaveIsAFailure) {
  const testing::ScratchFolder folder;
  const std::string checkpoints = folder.file("checkpoints");
  run_ranks(RankKind::single, 1, [&](const Group& group) {
    Parts parts(group);
    Trainer trainer(parts.ddp, parts.loader, {.epochs = 9, .checkpoints = checkpoints, .save_every = 100});
    trainer.add({.after_step = [&](const Standing& now) {
      if (now.step != 2) return;
      std::filesystem::remove_all(checkpoints);
      std::ofstream(checkpoints) << "a file";
      raise(SIGTERM);
    }});
    ::testing::internal::CaptureStderr();
    const TrainerEnd end = parts.run(trainer);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("no checkpoint of step 3"));
    EXPECT_EQ(end.stopped_by, "signal");
    EXPECT_NE(end.unsaved, "");
    EXPECT_EQ(int(end), kExitFailure);
  });
}

// As for `lockstep train`: whoever waits for it hears that the last step is nowhere.
TEST(Trainer, AnEndWithoutItsCheckpointIsAFailure) {
  const testing::ScratchFolder folder;
  const std::string checkpoints = folder.file("checkpoints");
  run_ranks(RankKind::single, 1, [&](const Group& group) {
    Parts parts(group);
    Trainer trainer(parts.ddp, parts.loader, {.epochs = 1, .checkpoints = checkpoints, .save_every = 100});
    trainer.add({.after_step = [&](const Standing& now) {
      if (now.step != 2) return;
      std::filesystem::remove_all(checkpoints);
      std::ofstream(checkpoints) << "a file";
    }});
    ::testing::internal::CaptureStderr();
    const TrainerEnd end = parts.run(trainer);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("no checkpoint of step 3"));
    EXPECT_EQ(end.stopped_by, "");
    EXPECT_EQ(int(end), kExitFailure);
  });
}

// Behind a restart, too: the count of early stopping is part of the state.
TEST(Trainer, ASignalSavesAndEarlyStoppingGoesOn) {
  const testing::ScratchFolder folder;
  const std::string checkpoints = folder.file("checkpoints");
  const auto run = [&](std::int64_t epochs, const std::function<void(const Standing&)>& after_step) {
    TrainerEnd end;
    run_ranks(RankKind::single, 1, [&](const Group& group) {
      Parts parts(group);
      Trainer trainer(parts.ddp, parts.loader,
                      {.epochs = epochs,
                       .evaluate =
                           [] {
                             return Found{{"loss", 1}};
                           },
                       .checkpoints = checkpoints,
                       .monitor = "loss"});
      trainer.add(early_stopping({.patience = 2}));
      trainer.add({.after_step = after_step});
      end = parts.run(trainer);
    });
    return end;
  };
  EXPECT_EQ(run(1, {}).steps, 3u);
  // Begins with the evaluation of step 3 once more, which counts once.
  const TrainerEnd stopped = run(9, [](const Standing& now) {
    if (now.step == 7) raise(SIGTERM);
  });
  EXPECT_EQ(stopped.stopped_by, "signal");
  EXPECT_EQ(stopped.steps, 8u) << "the step that was under way, for the ranks tell each other in the next one";
  EXPECT_EQ(int(stopped), kExitStopped);
  int steps = 0;
  const TrainerEnd end = run(9, [&](const Standing&) { ++steps; });
  EXPECT_EQ(end.stopped_by, "early stopping");
  EXPECT_EQ(end.steps, 9u) << "the best one was the first, of step 3";
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(run(9, [&](const Standing&) { ++steps; }).steps, 9u) << "it has ended, and stays so";
  EXPECT_EQ(steps, 1);
}

// As PassOptions::asked_to_stop has it end.
TEST(Trainer, AnEvaluationThatASignalHasEndedIsMadeByTheNextStart) {
  const testing::ScratchFolder folder;
  int evaluations = 0;
  const auto run = [&](bool signalled) {
    TrainerEnd end;
    run_ranks(RankKind::single, 1, [&](const Group& group) {
      Parts parts(group);
      Trainer trainer(parts.ddp, parts.loader,
                      {.epochs = 2,
                       .evaluate =
                           [&] {
                             if (signalled) throw evaluation::Stopped();
                             ++evaluations;
                             return Found{{"loss", 1}};
                           },
                       .checkpoints = folder.file("checkpoints"),
                       .save_every = 100});
      end = parts.run(trainer);
    });
    return end;
  };
  const TrainerEnd stopped = run(true);
  EXPECT_EQ(int(stopped), kExitStopped);
  EXPECT_EQ(stopped.steps, 3u);
  EXPECT_EQ(int(run(false)), kExitDone);
  EXPECT_EQ(evaluations, 2) << "that of the first epoch, too";
}

// Nothing is left to train then, but the evaluation and the checkpoint that has its result.
TEST(Trainer, ASignalInTheLastStepLeavesItsEvaluationToTheNextStart) {
  for (const bool is_asked_to_end : {false, true}) {  // by an observer, in the same step; else max_steps is its end
    const testing::ScratchFolder folder;
    int steps = 0, begun = 0, epochs = 0, evaluations = 0;
    const auto run = [&](std::uint64_t signal_behind) {
      TrainerEnd end;
      run_ranks(RankKind::single, 1, [&](const Group& group) {
        Parts parts(group);
        TrainerOptions options{.epochs = 9,
                               .evaluate =
                                   [&] {
                                     ++evaluations;
                                     return Found{{"loss", 0.25}};
                                   },
                               .checkpoints = folder.path(),
                               .monitor = "loss"};
        if (!is_asked_to_end) options.max_steps = 6;
        Trainer trainer(parts.ddp, parts.loader, options);
        trainer.add({.after_step =
                         [&](const Standing& now) {
                           ++steps;
                           if (now.step == signal_behind) raise(SIGTERM);
                         },
                     .before_epoch = [&](const Standing&) { ++begun; },
                     .after_epoch = [&](const Standing&) { ++epochs; }});
        if (is_asked_to_end)
          trainer.add({.name = "end", .wants_end = [](const Standing& now) { return now.step == 6; }});
        end = parts.run(trainer);
      });
      return end;
    };
    const auto metric = [&] { return checkpoint::read_state(folder.file("step-00000006")).metric; };
    const TrainerEnd stopped = run(5);
    EXPECT_EQ(stopped.stopped_by, "signal");
    EXPECT_EQ(stopped.steps, 6u);
    EXPECT_EQ(evaluations, 1) << "of the first epoch";
    EXPECT_EQ(metric(), std::nullopt);
    const TrainerEnd end = run(99);
    EXPECT_EQ(end.stopped_by, is_asked_to_end ? "end" : "");
    EXPECT_EQ(end.steps, 6u);
    EXPECT_EQ(steps, 6);
    EXPECT_EQ(begun, 2);
    EXPECT_EQ(epochs, 2);
    EXPECT_EQ(evaluations, 2) << "of the second, too";
    EXPECT_EQ(metric(), 0.25);
  }
}

// In the middle of an epoch nothing is evaluated, whoever ends it.
TEST(Trainer, ASignalInALastStepThatEndsNoEpochLeavesNothingToTheNextStart) {
  const testing::ScratchFolder folder;
  int evaluations = 0;
  for (const std::uint64_t signal_behind : {3, 99})
    run_ranks(RankKind::single, 1, [&](const Group& group) {
      Parts parts(group);
      Trainer trainer(parts.ddp, parts.loader,
                      {.epochs = 9,
                       .max_steps = 4,
                       .evaluate =
                           [&] {
                             ++evaluations;
                             return Found{};
                           },
                       .checkpoints = folder.path()});
      trainer.add({.after_step = [&](const Standing& now) {
        if (now.step == signal_behind) raise(SIGTERM);
      }});
      EXPECT_EQ(parts.run(trainer).steps, 4u);
    });
  EXPECT_EQ(evaluations, 1) << "of the first epoch";
}

}  // namespace
}  // namespace lockstep::train
