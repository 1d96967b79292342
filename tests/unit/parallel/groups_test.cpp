// An optimizer with groups of parameters, each of which has rules of its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep::parallel {
namespace {

TEST(Groups, AreUpdatedByTheirOwnRules) {
  const auto linear = std::make_shared<torch::nn::LinearImpl>(3, 2);
  DistributedDataParallel ddp(linear, std::make_shared<comm::SingleGroup>());
  ddp.attach({.groups = 2, .group_of = {0, 1}});
  at::Tensor weight = linear->weight.detach().clone();
  at::Tensor bias = linear->bias.detach().clone();
  std::vector<std::pair<int, std::uint64_t>> asked;
  const optim::Rules rules = [&](const optim::RuleKey& key) {
    asked.emplace_back(key.group, key.step);
    return optim::Rule(optim::rule_for(optim::SGDOptions{.lr = key.group == 0 ? 0.25 : 0.5}, key.step));
  };
  for (int step = 0; step < 2; ++step) {
    ddp(torch::ones({4, 3})).sum().backward();  // all gradients are 4
    ddp.apply(rules, {});
    weight = weight - 1;
    bias = bias - 2;
    EXPECT_TRUE(torch::equal(linear->weight.detach(), weight));
    EXPECT_TRUE(torch::equal(linear->bias.detach(), bias));
  }
  EXPECT_THAT(asked, ::testing::ElementsAre(std::pair(0, 1u), std::pair(1, 1u), std::pair(0, 2u), std::pair(1, 2u)));
}

TEST(Groups, OfANumberThatTheOptimizerDoesNotHaveAreRefused) {
  Engine engine(std::make_shared<torch::nn::LinearImpl>(3, 2), std::make_shared<comm::SingleGroup>(), {});
  try {
    engine.attach({.groups = 2, .group_of = {0, 2}});
    ADD_FAILURE() << "attached with a group that has no rules";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'bias'"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("0 to 1"));
  }
}

}  // namespace
}  // namespace lockstep::parallel
