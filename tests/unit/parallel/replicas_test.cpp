// The classic path where ranks are not alike: uneven inputs, weights that diverged, parameters that came late.

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/lockstep.h"
#include "lockstep/parallel/replica_check.h"
#include "tests/support/ranks.h"
#include "tests/support/sanitizers.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using GroupPointer = std::shared_ptr<comm::Group>;

torch::nn::Linear line() {
  torch::nn::Linear model(2, 1);
  const torch::NoGradGuard no_grad;
  model->weight.fill_(1);
  model->bias.zero_();
  return model;
}

// The gradient of its sum is the input.
at::Tensor input_of(int rank, int step) { return torch::full({1, 2}, double(10 * rank + step + 1)); }

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

// ---- join

// Rank r has r + 1 inputs. What a rank sees of the gradient in each of its steps.
std::vector<double> gradients_in_join(const GroupPointer& group, const JoinOptions& options, bool hook = false,
                                      Amp amp = Amp::none) {
  torch::nn::Linear model = line();
  DistributedDataParallel ddp(model, group, {.amp = amp});
  if (hook) ddp.register_comm_hook(group, allreduce_hook);
  std::vector<double> seen;
  ddp.join(
      [&] {
        for (int step = 0; step <= group->rank(); ++step) {
          model->zero_grad();
          ddp(input_of(group->rank(), step)).sum().backward();
          seen.push_back(model->weight.grad()[0][0].item<double>());
        }
      },
      options);
  return seen;
}

TEST(Join, RanksWithoutInputsCountAsZeros) {
  run_ranks(RankKind::threads, 3, [](GroupPointer group) {
    for (const bool hook : {false, true}) {
      const std::vector<double> all{(1 + 11 + 21) / 3.0, (12 + 22) / 3.0, 23 / 3.0};
      const auto seen = gradients_in_join(group, {}, hook);
      ASSERT_EQ(seen.size(), std::size_t(group->rank() + 1));
      for (std::size_t step = 0; step < seen.size(); ++step) EXPECT_NEAR(seen[step], all[step], 1e-5) << step;
    }
  });
}

TEST(Join, WorksInBfloat16) {
  run_ranks(RankKind::threads, 2, [](GroupPointer group) {
    const auto seen = gradients_in_join(group, {}, false, Amp::bf16);
    EXPECT_NEAR(seen[0], 6, 1e-5);
    if (group->rank() == 1) {
      EXPECT_NEAR(seen[1], 6, 1e-5);
    }
  });
}

TEST(Join, OrTheMeanIsOverThoseThatAreLeft) {
  run_ranks(RankKind::threads, 3, [](GroupPointer group) {
    const std::vector<double> all{(1 + 11 + 21) / 3.0, (12 + 22) / 2.0, 23};
    const auto seen = gradients_in_join(group, {.divide_by_initial_world_size = false});
    for (std::size_t step = 0; step < seen.size(); ++step) EXPECT_NEAR(seen[step], all[step], 1e-5) << step;
  });
}

TEST(Join, EndsWithTheWeightsAndBuffersOfTheLast) {
  run_ranks(RankKind::threads, 2, [](GroupPointer group) {
    torch::nn::Sequential model(line(), torch::nn::BatchNorm1d(1));
    DistributedDataParallel ddp(model, group);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
    ddp.join([&] {
      for (int step = 0; step < 2 + 3 * (1 - group->rank()); ++step) {  // rank 0 has more
        optimizer.zero_grad();
        ddp(torch::cat({input_of(group->rank(), step), torch::zeros({1, 2})})).square().sum().backward();
        optimizer.step();
      }
    });
    EXPECT_EQ(model->named_buffers()["1.num_batches_tracked"].item<int>(), 5);
    for (const auto& [name, tensor] : ddp.state_dict()) {
      const auto all = group->all_gather(tensor);
      EXPECT_TRUE(torch::equal(all[0], all[1])) << name;
    }
    ddp(torch::cat({input_of(0, 0), input_of(1, 1)})).sum().backward();  // all as before
  });
}

TEST(Join, KeepsGradientsAndUnusedParametersOfARankWithoutInputs) {
  run_ranks(RankKind::threads, 2, [](GroupPointer group) {
    torch::nn::Linear model = line();
    DistributedDataParallel ddp(model, group, {.find_unused_parameters = true});
    model->weight.mutable_grad() = torch::full({1, 2}, 7.0);
    ddp.join([&] {
      if (group->rank() == 0) return;
      model->zero_grad();
      ddp(input_of(1, 0)).sum().backward();
    });
    EXPECT_EQ(model->weight.grad()[0][0].item<float>(), group->rank() == 0 ? 7 : 5.5);
  });
}

TEST(Join, NobodyNeedsInputs) {
  run_ranks(RankKind::threads, 2, [](GroupPointer group) {
    DistributedDataParallel ddp(line(), group);
    EXPECT_NO_THROW(ddp.join([] {}));
  });
}

TEST(Join, NoSyncPassesAreEachRanksOwn) {
  run_ranks(RankKind::threads, 2, [](GroupPointer group) {
    torch::nn::Linear model = line();
    DistributedDataParallel ddp(model, group);
    ddp.join([&] {
      const auto guard = ddp.no_sync();
      for (int step = 0; step <= group->rank(); ++step) ddp(input_of(group->rank(), step)).sum().backward();
    });
    EXPECT_EQ(model->weight.grad()[0][0].item<float>(), group->rank() == 0 ? 1 : 11 + 12);
  });
}

TEST(Join, EarlyTerminationEndsAllLoopsAndTheGroupLives) {
  run_ranks(RankKind::threads, 2, [](GroupPointer group) {
    EXPECT_EQ(message_of([&] { gradients_in_join(group, {.throw_on_early_termination = true}); }),
              "join: rank 0 has no more inputs, and throw_on_early_termination is set");
    group->barrier();
  });
}

TEST(Join, WhatTheLoopThrowsReachesTheOthers) {
  run_ranks(RankKind::threads, 2, [](GroupPointer group) {
    DistributedDataParallel ddp(line(), group);
    const std::string said = message_of([&] {
      ddp.join([&] {
        if (group->rank() == 1) throw std::runtime_error("mine");
      });
    });
    EXPECT_NE(said.find("mine"), std::string::npos) << said;
  });
}

TEST(Join, OtherPassesAreNamed) {
  run_ranks(RankKind::threads, 2, [](GroupPointer group) {
    torch::nn::Linear model = line();
    DistributedDataParallel ddp(model, group);
    const std::string said = message_of([&] {
      ddp.join([&] {
        const at::Tensor first = ddp(input_of(0, 0)).sum();
        if (group->rank() == 0) ddp(input_of(0, 1));
        first.backward();
      });
    });
    EXPECT_NE(said.find("rank 0 begins a forward pass and rank 1 a backward pass"), std::string::npos) << said;
  });
}

TEST(Join, IsRefusedWhereItCannotWork) {
  const auto group = std::make_shared<comm::SingleGroup>();
  const auto answer = [&](auto& ddp, JoinOptions options = {}) {
    return message_of([&] { ddp.join([] {}, options); });
  };
  {
    torch::nn::Sequential model(torch::nn::BatchNorm1d(2));
    convert_sync_batchnorm(model, group);
    DistributedDataParallel ddp(model, group);
    EXPECT_EQ(answer(ddp), "no error");
    EXPECT_EQ(answer(ddp, {.throw_on_early_termination = true}), "no error");
  }
  DistributedDataParallel half(line(), group, {.amp = Amp::fp16});
  EXPECT_NE(answer(half).find("join() with Amp::fp16"), std::string::npos);
  DistributedDataParallel hooked(line(), group);
  hooked.register_comm_hook(group, allreduce_hook);
  EXPECT_NE(answer(hooked, {.divide_by_initial_world_size = false}).find("join() with a communication hook"),
            std::string::npos);
  DistributedDataParallel twice(line(), group);
  EXPECT_EQ(message_of([&] { twice.join([&] { twice.join([] {}); }); }), "data parallel: join() within join()");
}

// Ranks have had different numbers of inputs, and look at their replicas at the same steps all the same.
TEST(Join, CountsForTheCheckOfReplicas) {
  run_ranks(RankKind::threads, 2, [](GroupPointer group) {
    torch::nn::Linear model = line();
    DistributedDataParallel ddp(model, group, {.verify_replicas_every = 2});
    const auto step = [&](int number) {
      model->zero_grad();
      ddp(input_of(group->rank(), number)).sum().backward();
    };
    ddp.join([&] {
      for (int number = 0; number < 3 + group->rank(); ++number) step(number);
    });
    for (int number = 0; number < 4; ++number) step(number);
    EXPECT_EQ(model->weight.grad()[0][0].item<double>(), 9);
  });
}

// ---- without join

// What body() throws, within a second: long before the deadline of 20 s at which a wait ends by itself.
std::string message_at_once(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  std::string said = message_of(body);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(support::kSanitizer ? 10 : 1)) << said;
  return said;
}

TEST(UnevenRanks, ARankThatLeftIsNamed) {
  run_ranks(RankKind::threads, 2, [](GroupPointer group) {
    torch::nn::Linear model = line();
    DistributedDataParallel ddp(model, std::move(group));
    const int rank = ddp.group().rank();
    ddp(input_of(0, 0)).sum().backward();
    if (rank == 1) return;  // its inputs are over, and so is it
    const std::string said = message_at_once([&] { ddp(input_of(0, 1)).sum().backward(); });
    EXPECT_NE(said.find("rank 1"), std::string::npos) << said;
  });
}

TEST(UnevenRanks, AnotherCollectiveIsNamed) {
  run_ranks(RankKind::threads, 2, [](GroupPointer group) {
    torch::nn::Linear model = line();
    DistributedDataParallel ddp(model, group);
    ddp(input_of(0, 0)).sum().backward();
    const std::string said = message_at_once([&] {
      if (group->rank() == 1)
        group->all_gather(torch::zeros({1}));
      else
        ddp(input_of(0, 1)).sum().backward();
    });
    EXPECT_NE(said.find("all_reduce"), std::string::npos) << said;
    EXPECT_NE(said.find("all_gather"), std::string::npos) << said;
  });
}

// ---- verify_replicas_every

TEST(ReplicaCheck, NamesTheRankThatMostDisagreeWith) {
  const auto found = [](std::vector<std::vector<std::int64_t>> hashes) {
    const auto diverged = find_diverged(hashes);
    return diverged ? std::pair(diverged->rank, int(diverged->parameter)) : std::pair(-1, -1);
  };
  EXPECT_EQ(found({{1, 2}}), std::pair(-1, -1));
  EXPECT_EQ(found({{1, 2}, {1, 2}}), std::pair(-1, -1));
  EXPECT_EQ(found({{1, 2}, {1, 3}}), std::pair(1, 1)) << "of two the lower rank counts";
  EXPECT_EQ(found({{1, 2}, {1, 3}, {1, 3}}), std::pair(0, 1)) << "most";
  EXPECT_EQ(found({{1, 2}, {4, 3}, {1, 3}}), std::pair(1, 0)) << "the first parameter";
  EXPECT_EQ(found({{}, {}}), std::pair(-1, -1));
}

TEST(ReplicaCheck, FindsADivergedWeightAtTheNextCheck) {
  const auto expect_found = [](const GroupPointer& group, bool frozen) {
    torch::nn::Linear model = line();
    model->bias.set_requires_grad(!frozen);
    DistributedDataParallel ddp(model, group, {.verify_replicas_every = 2});
    const auto step = [&] { ddp(input_of(group->rank(), 0)).sum().backward(); };
    for (int i = 0; i < 3; ++i) step();
    if (group->rank() == 2) {
      const torch::NoGradGuard no_grad;
      model->bias += 1e-6;
    }
    step();  // behind step 3 nobody looks
    EXPECT_EQ(message_of(step),
              "data parallel: after step 4 rank 2 has other values of parameter 'bias' than most "
              "ranks (verify_replicas_every)")
        << "frozen: " << frozen;
  };
  run_ranks(RankKind::threads, 3, [&](GroupPointer group) {
    for (const bool frozen : {false, true}) expect_found(group, frozen);  // the group can be used on
  });
}

TEST(ReplicaCheck, IsDoneBeforeAnEvaluation) {
  run_ranks(RankKind::threads, 2, [](GroupPointer group) {
    torch::nn::Linear model = line();
    DistributedDataParallel ddp(model, group, {.verify_replicas_every = 1});
    ddp(input_of(group->rank(), 0)).sum().backward();
    model->weight.mutable_data_ptr<float>()[1] = float(group->rank());
    EXPECT_NE(message_of([&] { ddp.begin_evaluation(); })
                  .find("after step 1 rank 1 has other values of parameter "
                        "'weight'"),
              std::string::npos);
  });
}

TEST(ReplicaCheck, HasNothingToDoWithAnOptimizerOfOursOnOneNode) {
  DistributedDataParallel ddp(line(), std::make_shared<comm::SingleGroup>(), {.verify_replicas_every = 1});
  optim::SGD optimizer(ddp, {.lr = 0.1});
  const std::vector<std::string> ignored = ddp.debug().ignored_options();
  ASSERT_EQ(ignored.size(), 1u);
  EXPECT_EQ(ignored[0].find("verify_replicas_every: "), 0u) << ignored[0];
  ddp(input_of(0, 0)).sum().backward();
  optimizer.step();
}

// ---- parameters after wrapping

TEST(ConvertedParameter, IsNamedAtTheNextForwardOrBackward) {
  const auto refusal = [](const std::function<void(torch::nn::Linear&)>& convert, at::ScalarType input) {
    torch::nn::Linear model = line();
    DistributedDataParallel ddp(model, std::make_shared<comm::SingleGroup>());
    ddp(input_of(0, 0)).sum().backward();
    convert(model);
    return message_of([&] { ddp(input_of(0, 0).to(input)); });
  };
  EXPECT_EQ(refusal([](auto& model) { model->to(at::kDouble); }, at::kDouble),
            "data parallel: parameter 'weight' was converted after the model was wrapped, now Double [1, 2] on cpu, so "
            "the ranks would not average its gradients; convert it before DistributedDataParallel(...), or wrap the "
            "model anew");
  EXPECT_NE(refusal(
                [](auto& model) {
                  model->to(at::kDouble);
                  model->to(at::kFloat);
                },
                at::kFloat)
                .find("parameter 'weight' was converted"),
            std::string::npos)
      << "and back, which is another gradient's place";
  EXPECT_NE(refusal([](auto& model) { model->bias.set_data(torch::ones({2})); }, at::kFloat)
                .find("parameter 'bias' was converted after the model was wrapped, now Float [2] on cpu"),
            std::string::npos);
  EXPECT_EQ(refusal(
                [](auto& model) {
                  model->weight.set_data(torch::ones({1, 2}));
                },
                at::kFloat),
            "no error")
      << "other memory is none";
  // Past the wrapper: the bias has its hook still.
  torch::nn::Linear model = line();
  DistributedDataParallel ddp(model, std::make_shared<comm::SingleGroup>(), {.find_unused_parameters = true});
  model->weight.set_data(model->weight.to(at::kDouble));
  EXPECT_NE(message_of([&] {
              (model->weight.sum().to(at::kFloat) + model->bias.sum()).backward();
            }).find("parameter 'weight' was converted"),
            std::string::npos);
}

TEST(ConvertedParameter, IsToldToTheOtherRanks) {
  run_ranks(RankKind::threads, 2, [](GroupPointer group) {
    torch::nn::Linear model = line();
    DistributedDataParallel ddp(model, group);
    const at::Tensor input = input_of(group->rank(), 0);
    ddp(input).sum().backward();
    if (group->rank() == 1) model->to(at::kDouble);
    EXPECT_NE(message_of([&] {
                ddp(group->rank() == 1 ? input.to(at::kDouble) : input).sum().backward();
              }).find("parameter 'weight' was converted"),
              std::string::npos);
  });
}

TEST(LateParameter, IsNamedOnBothPaths) {
  for (const bool ours : {false, true}) {
    torch::nn::Sequential model(line());
    DistributedDataParallel ddp(model, std::make_shared<comm::SingleGroup>());
    std::optional<optim::SGD> optimizer;
    if (ours) optimizer.emplace(ddp, optim::SGDOptions{.lr = 0.1});
    ddp(input_of(0, 0)).sum().backward();
    if (ours) optimizer->step();
    model->push_back("late", torch::nn::Linear(1, 1));
    EXPECT_EQ(message_of([&] { ddp(input_of(0, 0)); }),
              "data parallel: parameter 'late.weight' was registered after the model was wrapped, so the ranks do not "
              "share it; register it before DistributedDataParallel(...)");
  }
}

TEST(LateParameter, OtherMemoryIsNone) {
  torch::nn::Linear model = line();
  DistributedDataParallel ddp(model, std::make_shared<comm::SingleGroup>());
  model->weight.set_data(torch::ones({1, 2}));
  EXPECT_NO_THROW(ddp(input_of(0, 0)));
}

}  // namespace
}  // namespace lockstep::parallel
