// Every optimizer with the engine: the same bits on any number of ranks, parameter groups included, and PyTorch's
// result.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "tests/support/small_job.h"

namespace lockstep {
namespace {

using support::maker;
using support::OptimizerMaker;
using support::RankKind;
using support::run_ranks;
using ::testing::HasSubstr;

struct Named {
  const char* name;
  OptimizerMaker make;
};
void PrintTo(const Named& named, std::ostream* out) { *out << named.name; }

using SGDGroup = optim::ParamGroup<optim::SGDOptions>;
using AdamGroup = optim::ParamGroup<optim::AdamOptions>;

const std::vector<Named>& optimizers() {
  static const std::vector<Named> all = {
      {"Adam_amsgrad", maker(optim::AdamOptions{.lr = 0.01, .amsgrad = true})},
      {"AdamW_maximize", maker(optim::AdamWOptions{.lr = 1e-4, .maximize = true})},
      {"Adadelta", maker(optim::AdadeltaOptions{})},
      {"Adagrad", maker(optim::AdagradOptions{.initial_accumulator_value = 0.1})},
      {"LARS", maker(optim::LARSOptions{.lr = 0.5, .momentum = 0.9, .weight_decay = 1e-3, .trust_coefficient = 0.02})},
      {"LAMB_groups", maker({optim::ParamGroup<optim::LAMBOptions>{"bn.*", {.weight_decay = 0}}, {"*"}},
                            optim::LAMBOptions{.lr = 0.01})},
      {"Lion", maker(optim::LionOptions{.lr = 1e-3})},
      {"NAdam", maker(optim::NAdamOptions{})},
      {"RAdam", maker(optim::RAdamOptions{})},
      {"RMSprop", maker(optim::RMSpropOptions{.lr = 1e-3, .momentum = 0.9, .centered = true})},
      {"SGD_groups", maker({SGDGroup{"*.bias", {.momentum = 0}}, SGDGroup{"fc1.*", {.lr = 0.01}}, SGDGroup{"*"}},
                           optim::SGDOptions{.lr = 0.05, .momentum = 0.9})},
      {"Adam_groups",
       maker({AdamGroup{"bn.*", {.lr = 1e-4}}, AdamGroup{"*", {.amsgrad = true}}}, optim::AdamOptions{.lr = 0.01})}};
  return all;
}

class Rules : public testing::TestWithParam<Named> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, Rules, testing::ValuesIn(optimizers()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Rules, GiveTheSameBitsOnAnyNumberOfRanks) {
  for (const Amp amp : {Amp::none, Amp::bf16}) {
    const support::SmallJob job{.optimizer = GetParam().make, .amp = amp};
    const std::string alone = support::hash_of(1, job);
    for (const int ranks : {2, 3, 4}) EXPECT_EQ(support::hash_of(ranks, job), alone) << ranks;
  }
}

// Passes that add up, clipping, a scaled loss with overflows, a plateau, unused parameters, a running average.
TEST_P(Rules, GiveTheSameBitsWithAllOptionsAtOnce) {
  const support::SmallJob job{.steps = 8,
                              .optimizer = GetParam().make,
                              .ema = parallel::EmaOptions{.decay = 0.9, .interval = 2},
                              .all_options = true};
  const std::string alone = support::hash_of(1, job);
  for (const int ranks : {2, 3, 4}) EXPECT_EQ(support::hash_of(ranks, job), alone) << ranks;
}

TEST_P(Rules, TrainTheirWeights) {
  std::string before;
  const support::SmallJob job{.optimizer = GetParam().make, .after_step = [&](parallel::Engine& ddp) {
                                const std::string now = ddp.weights_hash();
                                EXPECT_NE(now, before);
                                before = now;
                                for (const auto& [name, weight] : ddp.state_dict())
                                  EXPECT_TRUE(torch::isfinite(weight).all().item<bool>()) << name;
                              }};
  run_ranks(RankKind::single, 1, [&](const auto& group) { support::run_small_job(group, job); });
}

// Weights of ours and of torch's with the same groups, and rates that change between steps.
TEST(ParamGroups, GiveTorchsWeights) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::manual_seed(3);
    const auto model = std::make_shared<support::SmallNetImpl>();
    model->dropout->options.p(0);
    const auto theirs = std::make_shared<support::SmallNetImpl>();
    theirs->dropout->options.p(0);
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < model->parameters().size(); ++i)
        theirs->parameters()[i].copy_(model->parameters()[i]);
    }
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(
        ddp, {{model->fc1->parameters(), {.lr = 0.2, .momentum = 0.5}}, {"*.bias", {.weight_decay = 0}}, {"*"}},
        {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01});
    const auto options = [](double lr, double momentum, double decay) {
      return std::make_unique<torch::optim::SGDOptions>(
          torch::optim::SGDOptions(lr).momentum(momentum).weight_decay(decay));
    };
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(theirs->fc1->parameters(), options(0.2, 0.5, 0.01));
    groups.emplace_back(std::vector<at::Tensor>{theirs->bn->bias, theirs->fc2->bias, theirs->fc3->bias},
                        options(0.05, 0.9, 0));
    groups.emplace_back(std::vector<at::Tensor>{theirs->bn->weight, theirs->fc2->weight, theirs->fc3->weight},
                        options(0.05, 0.9, 0.01));
    torch::optim::SGD plain(groups, torch::optim::SGDOptions(1));
    for (int step = 0; step < 5; ++step) {
      optimizer.param_groups()[2].options.lr = 0.05 / (1 + step);
      static_cast<torch::optim::SGDOptions&>(plain.param_groups()[2].options()).lr(0.05 / (1 + step));
      const auto batch = support::small_batch(std::uint64_t(step), {0, 1});
      torch::nn::functional::cross_entropy(ddp(batch.data), batch.target).backward();
      optimizer.step();
      plain.zero_grad();
      torch::nn::functional::cross_entropy(theirs->forward(batch.data), batch.target).backward();
      plain.step();
    }
    const auto named = theirs->named_parameters();
    for (const auto& entry : model->named_parameters())
      EXPECT_TRUE(torch::allclose(entry.value(), named[entry.key()], 1e-6, 1e-7)) << entry.key();
  });
}

TEST(ParamGroups, OfAnotherModelAreRefusedBeforeAnythingIsMade) {
  run_ranks(RankKind::single, 1, [](auto group) {
    support::SmallNet model, other;
    DistributedDataParallel ddp(model, group);
    try {
      optim::Adam optimizer(ddp, {{other->fc1->parameters()}, {"*"}});
      ADD_FAILURE() << "took the parameters of another model";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("parameter group 0: tensor 0 is no parameter of the model"));
    }
    optim::Adam optimizer(ddp);
    EXPECT_EQ(optimizer.param_groups().size(), 1u);
  });
}

}  // namespace
}  // namespace lockstep
