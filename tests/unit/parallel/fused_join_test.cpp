// join() with an optimizer of ours, and what happens without it.

#include "lockstep/parallel/fused_join.h"

#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <utility>

#include "lockstep/base/room.h"
#include "tests/support/sanitizers.h"
#include "tests/unit/parallel/hook_job.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The gradient of its sum is the input; the weight has two elements.
torch::nn::Linear flat_line() {
  torch::nn::Linear model(torch::nn::LinearOptions(2, 1).bias(false));
  const torch::NoGradGuard no_grad;
  model->weight.fill_(1);
  return model;
}
double value_of(int rank, int step) { return 10 * rank + step + 1; }
at::Tensor data_of(int rank, int step) { return torch::full({1, 2}, value_of(rank, step)); }

// Rank r has r + 1 inputs, and each step a learning rate of its own. A sum has a denominator.
struct Uneven {
  JoinOptions join = {};
  optim::StepOptions step = {};
  int shards = 0;
  Amp amp = Amp::none;
};

std::vector<float> weights_in_join(const Groups& group, const Uneven& how) {
  torch::nn::Linear model = flat_line();
  DistributedDataParallel ddp(model, group, {.shards = how.shards, .amp = how.amp});
  optim::SGD optimizer(ddp, {.lr = 9, .momentum = 0.5});
  std::vector<float> seen;
  ddp.join(
      [&] {
        for (int step = 0; step <= group->rank(); ++step) {
          const int count = ddp.local_shards().count();
          data::Batch batch{.data = data_of(group->rank(), step).repeat({count, 1}), .target = at::zeros({count})};
          for (auto& shard : ddp.shards(batch)) ddp(shard.data).sum().backward();
          optimizer.set_lr(0.1 / (step + 1));
          optimizer.step(how.step);
          seen.push_back(ddp.state_dict()["weight"][0][0].item<float>());
        }
      },
      how.join);
  seen.push_back(ddp.state_dict()["weight"][0][0].item<float>());  // all have that of the last
  return seen;
}

// The same by hand: `divisor(left)` of the sum over those `left` that have inputs.
std::vector<float> expected_weights(int ranks, int rank, const std::function<double(int left)>& divisor) {
  std::vector<float> all;
  double weight = 1, velocity = 0;
  for (int step = 0; step < ranks; ++step) {
    double sum = 0;
    for (int r = step; r < ranks; ++r) sum += value_of(r, step);
    const double gradient = sum / divisor(ranks - step);
    velocity = step == 0 ? gradient : 0.5 * velocity + gradient;
    weight -= 0.1 / (step + 1) * velocity;
    all.push_back(float(weight));
  }
  std::vector<float> seen(all.begin(), all.begin() + rank + 1);
  seen.push_back(all.back());
  return seen;
}

void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
}

TEST(FusedJoin, RanksWithoutInputsCountAsZerosByTheRulesOfTheOthers) {
  for (const Amp amp : {Amp::none, Amp::bf16})  // in which all inputs are exact
    run_ranks(RankKind::processes, 3, [&](Groups group) {
      expect_near(weights_in_join(group, {.amp = amp}), expected_weights(3, group->rank(), [](int) { return 3; }));
    });
}

TEST(FusedJoin, HasTheSameBitsInEveryRun) {
  const auto hash = [] {
    return told_by_rank_0(3, [](Groups group) {
      DistributedDataParallel ddp(two_layers(), group);
      optim::Adam adam(ddp, {.lr = 0.01});
      ddp.join([&] {
        for (int step = 0; step < 3 * (group->rank() + 1); ++step) {
          ddp(batch_of(group->rank(), step)).square().mean().backward();
          adam.step({.max_norm = 0.5});
        }
      });
      EXPECT_EQ(ddp.steps(), 9u);
      return ddp.state().hash();
    });
  };
  const std::string first = hash();
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(hash(), first);
}

TEST(FusedJoin, OrTheMeanIsOverThoseThatAreLeft) {
  run_ranks(RankKind::processes, 3, [](Groups group) {
    const Uneven how{.join = {.divide_by_initial_world_size = false}};
    expect_near(weights_in_join(group, how), expected_weights(3, group->rank(), [](int left) { return left; }));
  });
}

// Two shards each, whose gradients are equal.
TEST(FusedJoin, WithSeveralShardsAndDenominators) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    const Uneven left{.join = {.divide_by_initial_world_size = false}, .shards = 4};
    expect_near(weights_in_join(group, left), expected_weights(2, group->rank(), [](int left) { return left; }));
  });
  run_ranks(RankKind::processes, 2, [](Groups group) {
    const Uneven sums{.step = {.denominator = 5}};
    expect_near(weights_in_join(group, sums), expected_weights(2, group->rank(), [](int left) { return 5 * left; }));
  });
}

TEST(FusedJoin, ClipsOnAllRanksAndNobodyNeedsInputs) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    torch::nn::Linear model = flat_line();
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    EXPECT_NO_THROW(ddp.join([] {}));
    ddp.join([&] {
      if (group->rank() == 0) return;
      ddp(data_of(1, 0)).sum().backward();
      optimizer.step({.max_norm = 0.5});
    });
    EXPECT_EQ(ddp.steps(), 1u);
    EXPECT_NEAR(ddp.last_record().gradient_norm, std::sqrt(2 * 5.5 * 5.5), 1e-5);
    EXPECT_NEAR(ddp.state_dict()["weight"][0][0].item<float>(), 1 - 0.5 / std::sqrt(2), 1e-5);
    ddp(data_of(0, 0)).sum().backward();  // all as before
    optimizer.step();
    EXPECT_EQ(ddp.steps(), 2u);
  });
}

// A step that is refused is the business of those that make it; the others follow on.
TEST(FusedJoin, ARankWithoutInputsMakesRoomWithTheOthers) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    torch::nn::Linear model = flat_line();
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 0.1});
    const auto loop = [&] {
      for (int step = 0; step <= 2 * group->rank(); ++step) {
        if (step == 1) {
          EXPECT_TRUE(base::ask_for_room(group->node().member.page()));
        }
        ddp(data_of(group->rank(), step)).sum().backward();
        optimizer.step();
      }
    };
    EXPECT_THROW(ddp.join(loop), GroupAborted);
    EXPECT_EQ(ddp.steps(), 2u);
  });
}

TEST(FusedJoin, ARefusedStepIsMadeAgain) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    torch::nn::Linear model = flat_line();
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    ddp.join([&] {
      if (group->rank() == 0) return;
      ddp(data_of(1, 0) * std::numeric_limits<float>::infinity()).sum().backward();
      EXPECT_THAT(error_of([&] { optimizer.step({.error_if_nonfinite = true}); }), HasSubstr("is not finite"));
      optimizer.zero_grad();
      ddp(data_of(1, 0)).sum().backward();
      optimizer.step({.error_if_nonfinite = true});
    });
    EXPECT_EQ(ddp.steps(), 1u);
    EXPECT_NEAR(ddp.state_dict()["weight"][0][0].item<float>(), 1 - 5.5, 1e-5);
  });
}

TEST(FusedJoin, EarlyTerminationEndsAllLoopsAndTheGroupLives) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    EXPECT_EQ(error_of([&] { weights_in_join(group, {.join = {.throw_on_early_termination = true}}); }),
              "join: rank 0 has no more inputs, and throw_on_early_termination is set");
    group->barrier();
  });
}

// Where gradients need no zeroing: what was begun of an input that no step was made of would be added to the next.
TEST(FusedJoin, BehindEarlyTerminationAStepHasItsOwnInputsAlone) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    torch::nn::Linear model = flat_line();
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    const auto one_step = [&](int step) {
      ddp(data_of(group->rank(), step)).sum().backward();
      optimizer.step();
    };
    EXPECT_THAT(error_of([&] {
                  ddp.join(
                      [&] {
                        for (int step = 0; step <= group->rank(); ++step) one_step(step);
                      },
                      {.throw_on_early_termination = true});
                }),
                HasSubstr("rank 0 has no more inputs"));
    EXPECT_EQ(ddp.steps(), 1u);
    one_step(0);
    EXPECT_EQ(ddp.steps(), 2u);
    EXPECT_NEAR(ddp.state_dict()["weight"][0][0].item<float>(), 1 - 2 * (1 + 11) / 2.0, 1e-5);
  });
}

// As a function of the step, which a rank without inputs may not see.
TEST(FusedJoin, RanksWithInputsMayFreeze) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    torch::nn::Linear model(2, 1);
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    ddp.join([&] {
      for (int step = 0; step <= group->rank(); ++step) {
        model->bias.set_requires_grad(step == 0);
        ddp(data_of(group->rank(), step)).sum().backward();
        optimizer.step();
      }
    });
    EXPECT_EQ(ddp.steps(), 2u);
    model->bias.set_requires_grad(true);
    ddp(data_of(0, 0)).sum().backward();
    optimizer.step();
    EXPECT_EQ(ddp.steps(), 3u);
  });
}

TEST(FusedJoin, IsRefusedWithinAnotherAndWithAScaledLoss) {
  const Groups group = std::make_shared<comm::SingleGroup>();
  DistributedDataParallel ddp(flat_line(), group);
  optim::SGD optimizer(ddp, {.lr = 1});
  EXPECT_EQ(error_of([&] { ddp.join([&] { ddp.join([] {}); }); }), "data parallel: join() within join()");
  DistributedDataParallel scaled(flat_line(), std::make_shared<comm::SingleGroup>());
  optim::SGD other(scaled, {.lr = 1});
  EXPECT_THAT(error_of([&] {
                scaled.join([&] {
                  scaled(data_of(0, 0)).sum().backward();
                  other.step({.loss_scale = optim::LossScale{.scale = 2}});
                });
              }),
              HasSubstr("join() with a scaled loss"));
}

// Who has to mend a backward first takes part in nothing: the others would wait elsewhere.
TEST(FusedJoin, ABrokenBackwardIsMendedBeforeTheOthersHear) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    torch::nn::Linear model = flat_line();
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    ddp.join([&] {
      if (group->rank() == 0) {
        // Behind the weight's gradient, for what was made first comes last.
        const at::Tensor input = data_of(0, 0).requires_grad_();
        input.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("mine"); });
        EXPECT_THROW(ddp(input * 1).sum().backward(), std::runtime_error);
        EXPECT_THAT(error_of([&] { optimizer.step(); }), HasSubstr("ended by an exception"));
        optimizer.zero_grad();
      }
      ddp(data_of(group->rank(), 0)).sum().backward();
      optimizer.step();
    });
    EXPECT_NEAR(ddp.state_dict()["weight"][0][0].item<float>(), 1 - (1 + 11) / 2.0, 1e-5);
  });
}

// ---- without it

// What fn() throws, within a second: long before the deadline of 20 s at which a wait ends by itself.
template <class F>
std::string error_at_once(F&& fn) {
  const auto begin = std::chrono::steady_clock::now();
  std::string said = error_of(std::forward<F>(fn));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(support::kSanitizer ? 10 : 1)) << said;
  return said;
}

TEST(FusedUneven, ARankThatLeftIsNamed) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    DistributedDataParallel ddp(flat_line(), std::move(group));
    optim::SGD optimizer(ddp, {.lr = 1});
    ddp(data_of(0, 0)).sum().backward();
    optimizer.step();
    if (ddp.group().rank() == 1) return;  // its inputs are over, and so is it
    ddp(data_of(0, 1)).sum().backward();
    EXPECT_THAT(error_at_once([&] { optimizer.step(); }), HasSubstr("rank 1"));
  });
}

TEST(FusedUneven, AnotherCollectiveIsNamed) {
  run_ranks(RankKind::threads, 3, [](Groups group) {
    DistributedDataParallel ddp(flat_line(), group);
    optim::SGD sgd(ddp, {.lr = 1});
    for (int step = 0; step < 2; ++step) {
      const std::string said = error_at_once([&] {  // the slowest may hear of it as it begins
        ddp(torch::ones({1, 2})).sum().backward();
        if (step == 1 && group->rank() == 1)
          group->all_gather(torch::zeros({7}));
        else
          sgd.step();
      });
      if (step == 1) {
        EXPECT_THAT(said, AllOf(HasSubstr("rank 1 calls all_gather(7 x Float"), HasSubstr("is in step 2 (gather)")));
      }
    }
  });
}

TEST(FusedUneven, AnotherCollectiveIsNamedWithinJoin) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    DistributedDataParallel ddp(flat_line(), group);
    optim::SGD sgd(ddp, {.lr = 1});
    const std::string said = error_at_once([&] {
      ddp.join([&] {
        ddp(torch::ones({1, 2})).sum().backward();
        if (group->rank() == 1) group->barrier();
        sgd.step();
      });
    });
    EXPECT_THAT(said, AllOf(HasSubstr("rank 1 calls barrier()"), HasSubstr("all_gather(2 x Long")));
  });
}

TEST(FusedUneven, AStepOutsideOfTheOthersJoinIsNamed) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    DistributedDataParallel ddp(flat_line(), group);
    optim::SGD sgd(ddp, {.lr = 1});
    const std::string said = error_at_once([&] {
      const auto step = [&] {
        ddp(torch::ones({1, 2})).sum().backward();
        sgd.step();
      };
      if (group->rank() == 1) return step();
      ddp.join(step);
    });
    EXPECT_THAT(said, AllOf(HasSubstr("rank 0 calls all_gather(2 x Long"), HasSubstr("rank 1 is in step 1 (gather)")));
  });
}

}  // namespace
}  // namespace lockstep::parallel
