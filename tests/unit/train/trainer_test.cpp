// A Trainer has the weights of the loop that one would write oneself, tells what happens in its order, and ends on all
// ranks alike.

#include "lockstep/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/train/shard_losses.h"
#include "lockstep/train/trainer_observers.h"
#include "tests/support/usage_error.h"
#include "tests/support/what_of.h"
#include "tests/unit/train/trainer_parts.h"

namespace lockstep::train {
namespace {

using support::RankKind;
using support::run_ranks;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
    trainer.add({.before_step = note("before"),
                 .after_step = note("after"),
                 .before_epoch = note("begin"),
                 .after_epoch = note("epoch"),
                 .before_evaluation = note("look")});
    trainer.add({.after_step = [&](const Standing& now) { last = now; },
                 .after_evaluation =
                     [&](const Standing&, const Found& found) {
                       told.push_back("found " + std::to_string(int(100 * found.at("accuracy"))));
                     }});
    parts.run(trainer);
    EXPECT_THAT(
        told, ElementsAre("begin 0/0", "before 0/1", "after 0/1", "before 0/2", "after 0/2", "before 0/3", "after 0/3",
                          "epoch 0/3", "look 0/3", "found 50", "begin 1/3", "before 1/4", "after 1/4", "before 1/5",
                          "after 1/5", "before 1/6", "after 1/6", "epoch 1/6", "look 1/6", "found 50"));
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

// What some of the ranks have sent of a step that nobody makes would be waited for, and take the group along.
TEST(Trainer, GuardsLeaveNothingUnderWayBetweenNodes) {
  support::run_nodes({2, 1}, [](const Group& group) {
    {
      parallel::DistributedDataParallel ddp(torch::nn::Linear(4, 1), group, {.overlap_bytes = 1});
      optim::SGD optimizer(ddp, {.lr = 0.1});
      amp::GradScaler plain({.enabled = false});
      const auto loss = [&](const Shard& shard) {
        const bool spoilt = ddp.steps() == 2 && shard.index == 1;
        return ddp(shard.data).mean() * (spoilt ? std::numeric_limits<double>::quiet_NaN() : 1);
      };
      const auto step = [&] {
        run_guarded_shards(ddp, {.data = at::ones({2, 4}), .target = {}}, loss, plain);
        optimizer.step();
      };
      step();
      step();
      EXPECT_EQ(ddp.debug().logging_data().waves.early, 2) << "weight and bias";
      EXPECT_EQ(support::what_of(step), "step 3: the loss of shard 1, of rank 1, is nan");
    }
    group->barrier();
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
