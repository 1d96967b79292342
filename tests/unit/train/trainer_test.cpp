// A Trainer has the weights of the loop that one would write oneself, tells what happens in its order, and ends on all
// ranks alike.

#include "lockstep/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>

#include "lockstep/data/tensor_batches.h"
#include "lockstep/evaluation/pass.h"
#include "lockstep/optim.h"
#include "lockstep/train/trainer_observers.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"
#include "tests/support/what_of.h"

namespace lockstep::train {
namespace {

using support::RankKind;
using support::run_ranks;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Group = std::shared_ptr<comm::Group>;

// A model, a set of 6 samples in batches of 2, and an optimizer that is made last.
struct Parts {
  explicit Parts(const Group& group) : ddp(net(), group, {.shards = 2}) {}

  static std::shared_ptr<torch::nn::LinearImpl> net() {
    auto net = std::make_shared<torch::nn::LinearImpl>(2, 1);
    const at::NoGradGuard no_grad;  // ranks that are threads have one generator between them
    net->weight.fill_(0.25);
    net->bias.zero_();
    return net;
  }
  at::Tensor loss(const Shard& shard) { return ddp(shard.data).sub(shard.target).square().mean(); }
  TrainerEnd run(Trainer& trainer) {
    optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
    return trainer.run(optimizer, [this](const Shard& shard) { return loss(shard); });
  }

  std::shared_ptr<const data::Batches> set = data::tensors(at::arange(12.0F).view({6, 2}).div(12), at::ones({6, 1}));
  parallel::DistributedDataParallel<std::shared_ptr<torch::nn::LinearImpl>> ddp;
  data::DataLoader loader{set, ddp.part(), {.global_batch_size = 2, .shuffle = true}};
};

// Of two epochs.
std::string weights_of_own_loop() {
  std::string hash;
  run_ranks(RankKind::single, 1, [&](const Group& group) {
    Parts parts(group);
    optim::SGD optimizer(parts.ddp, {.lr = 0.1, .momentum = 0.9});
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      parts.loader.set_epoch(epoch);
      for (auto& batch : parts.loader) {
        for (auto& shard : parts.ddp.shards(batch)) parts.loss(shard).backward();
        optimizer.step();
      }
    }
    hash = parts.ddp.weights_hash();
  });
  return hash;
}

TEST(Trainer, HasTheWeightsOfALoopOfOnesOwnOnAnyNumberOfRanks) {
  const std::string expected = weights_of_own_loop();
  for (const int ranks : {1, 2})
    run_ranks(ranks == 1 ? RankKind::single : RankKind::threads, ranks, [&](const Group& group) {
      Parts parts(group);
      Trainer trainer(parts.ddp, parts.loader, {.epochs = 2});
      const TrainerEnd end = parts.run(trainer);
      EXPECT_EQ(end.steps, 6u);
      EXPECT_EQ(int(end), kExitDone);
      EXPECT_EQ(parts.ddp.weights_hash(), expected) << ranks;
    });
}

TEST(Trainer, TellsWhatHappensInItsOrder) {
  run_ranks(RankKind::single, 1, [](const Group& group) {
    std::vector<std::string> told;
    const auto note = [&](const std::string& what) {
      return [&told, what](const Standing& now) {
        told.push_back(what + " " + std::to_string(now.epoch) + "/" + std::to_string(now.step));
      };
    };
    Parts parts(group);
    Trainer trainer(parts.ddp, parts.loader,
                    {.epochs = 2,
                     .lr = optim::Schedule([](double base, std::uint64_t t) { return t < 4 ? base : base / 2; }),
                     .evaluate = [] {
                       return Found{{"accuracy", 0.5}};
                     }});
    Standing last;
    trainer.add({.before_step = note("before"), .after_step = note("after"), .after_epoch = note("epoch")});
    trainer.add({.after_step = [&](const Standing& now) { last = now; },
                 .after_evaluation =
                     [&](const Standing&, const Found& found) {
                       told.push_back("found " + std::to_string(int(100 * found.at("accuracy"))));
                     }});
    parts.run(trainer);
    EXPECT_THAT(told, ElementsAre("before 0/1", "after 0/1", "before 0/2", "after 0/2", "before 0/3", "after 0/3",
                                  "epoch 0/3", "found 50", "before 1/4", "after 1/4", "before 1/5", "after 1/5",
                                  "before 1/6", "after 1/6", "epoch 1/6", "found 50"));
    EXPECT_EQ(last.samples, 12);
    EXPECT_EQ(last.loss, parts.ddp.last_record().loss);
    EXPECT_EQ(last.lr, 0.05);
  });
}

TEST(Trainer, OneRankThatWantsTheEndIsEnough) {
  run_ranks(RankKind::threads, 2, [](const Group& group) {
    Parts parts(group);
    Trainer trainer(parts.ddp, parts.loader, {.epochs = 2});
    trainer.add({.name = "never", .wants_end = [](const Standing&) { return false; }});
    trainer.add(
        {.name = "second", .wants_end = [&](const Standing& now) { return group->rank() == 1 && now.step == 2; }});
    const TrainerEnd end = parts.run(trainer);
    EXPECT_EQ(end.steps, 2u);
    EXPECT_EQ(end.stopped_by, "second");
    EXPECT_EQ(int(end), kExitDone);
  });
}

TEST(Trainer, EndsEarlyWhenNothingGetsBetter) {
  run_ranks(RankKind::single, 1, [](const Group& group) {
    Parts parts(group);
    std::vector<double> losses = {3, 2, 2.5, 2, 1};  // the fourth is as good as the best: no better
    std::size_t next = 0;
    Trainer trainer(parts.ddp, parts.loader, {.epochs = 9, .evaluate = [&] {
                                                return Found{{"loss", losses.at(next++)}};
                                              }});
    trainer.add(early_stopping({.patience = 2}));
    const TrainerEnd end = parts.run(trainer);
    EXPECT_EQ(next, 4u);
    EXPECT_EQ(end.steps, 12u);
    EXPECT_EQ(end.stopped_by, "early stopping");
  });
}

TEST(Trainer, KeepsToItsTimeAndItsSteps) {
  run_ranks(RankKind::single, 1, [](const Group& group) {
    Parts parts(group);
    Trainer trainer(parts.ddp, parts.loader, {.epochs = 9});
    trainer.add(time_limit(1e-9));
    EXPECT_EQ(parts.run(trainer).stopped_by, "time limit");
    EXPECT_EQ(parts.ddp.steps(), 1u);
  });
  run_ranks(RankKind::single, 1, [](const Group& group) {
    Parts parts(group);
    Trainer trainer(parts.ddp, parts.loader, {.epochs = 9, .max_steps = 4});
    EXPECT_EQ(parts.run(trainer).stopped_by, "");
    EXPECT_EQ(parts.ddp.steps(), 4u);
  });
}

// The loss of shard 1 is none in step 2. All ranks end with the same words.
TEST(Trainer, GuardsAgainstLossesThatAreNone) {
  run_ranks(RankKind::threads, 2, [](const Group& group) {
    Parts parts(group);
    Trainer trainer(parts.ddp, parts.loader, {.nan_guard = true});
    std::string failed;
    trainer.add({.failed = [&](const Standing& now, const std::exception& error) {
      failed = std::to_string(now.step) + ": " + error.what();
    }});
    optim::SGD optimizer(parts.ddp, {.lr = 0.1});
    const auto spoil = [&](const Shard& shard) {
      const bool spoilt = parts.ddp.steps() == 1 && shard.index == 1;
      return parts.loss(shard) * (spoilt ? -std::numeric_limits<double>::infinity() : 1);
    };
    EXPECT_EQ(support::what_of([&] { trainer.run(optimizer, spoil); }),
              "step 2: the loss of shard 1, of rank 1, is -inf");
    EXPECT_EQ(failed, "2: step 2: the loss of shard 1, of rank 1, is -inf");
    EXPECT_EQ(parts.ddp.steps(), 1u) << "nothing of it was committed";
  });
}

// A loss that is finite may have gradients that are not.
TEST(Trainer, GuardsAgainstGradientsThatAreNone) {
  run_ranks(RankKind::threads, 2, [](const Group& group) {
    Parts parts(group);
    amp::GradScaler disabled({.enabled = false});
    Trainer trainer(parts.ddp, parts.loader, {.scaler = &disabled, .nan_guard = true});
    optim::SGD optimizer(parts.ddp, {.lr = 0.1});
    const auto root = [&](const Shard& shard) {
      const at::Tensor error = parts.ddp(shard.data).sub(shard.target);
      return shard.index == 1 ? error.mul(0).sqrt().mean() : error.square().mean();
    };
    EXPECT_THAT(support::what_of([&] { trainer.run(optimizer, root); }),
                AllOf(HasSubstr("step 1"), HasSubstr("'weight', in shard 1, of rank 1.")));
    EXPECT_EQ(parts.ddp.steps(), 0u);
  });
}

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

TEST(Trainer, EvaluatesAWholeEpochWhateverEndsIt) {
  const auto evaluations = [](TrainerOptions options, std::optional<std::int64_t> batches, std::uint64_t wanted_end) {
    int count = 0;
    run_ranks(RankKind::single, 1, [&](const Group& group) {
      Parts parts(group);
      data::DataLoader loader(parts.set, parts.ddp.part(), {.global_batch_size = 2, .total_batches = batches});
      options.epochs = 9;
      options.evaluate = [&] {
        ++count;
        return Found{};
      };
      Trainer trainer(parts.ddp, loader, options);
      trainer.add({.name = "end", .wants_end = [&](const Standing& now) { return now.step == wanted_end; }});
      parts.run(trainer);
    });
    return count;
  };
  EXPECT_EQ(evaluations({.max_steps = 3}, {}, 99), 1);
  EXPECT_EQ(evaluations({.max_steps = 4}, {}, 99), 1);
  EXPECT_EQ(evaluations({}, {}, 6), 2);
  EXPECT_EQ(evaluations({}, 4, 99), 1) << "the loader's total ends it";
  EXPECT_EQ(evaluations({}, 6, 99), 2);
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

TEST(Trainer, RefusesWhatHasNoMeaning) {
  run_ranks(RankKind::single, 1, [](const Group& group) {
    const auto refusal = [&](const TrainerOptions& options) {
      Parts parts(group);
      return testing::usage_error([&] { Trainer(parts.ddp, parts.loader, options); });
    };
    EXPECT_EQ(refusal({.epochs = -1}), "trainer: epochs is -1: 0 or more expected");
    EXPECT_THAT(refusal({.save_every = 5}), HasSubstr("save_every has no meaning without checkpoints"));
    EXPECT_THAT(refusal({.monitor = "a"}), HasSubstr("monitor has no meaning without checkpoints"));
    EXPECT_THAT(refusal({.checkpoints = "x", .monitor = "a"}), HasSubstr("no meaning without evaluate"));
    Parts parts(group);
    Trainer trainer(parts.ddp, parts.loader, {});
    trainer.add(time_limit(5));
    EXPECT_THAT(testing::usage_error([&] { trainer.add(time_limit(6)); }),
                HasSubstr("second observer called 'time limit'"));
    EXPECT_THAT(testing::usage_error([&] { trainer.add({.wants_end = [](const Standing&) { return true; }}); }),
                HasSubstr("needs a name"));
    EXPECT_THAT(testing::usage_error([&] { trainer.add({.name = "signal"}); }), HasSubstr("another name expected"));
    EXPECT_THAT(testing::usage_error([] { time_limit(0); }), HasSubstr("more than 0"));
    EXPECT_THAT(testing::usage_error([] { early_stopping({.patience = 0}); }), HasSubstr("patience 0"));
  });
}

}  // namespace
}  // namespace lockstep::train
