// Two models of one program on one group: a generator and a discriminator, each with an optimizer of its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <unistd.h>

#include <csignal>

#include "lockstep/base/generation.h"
#include "tests/support/ambush.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/gan.h"
#include "tests/support/ranks.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using support::Gan;
using support::kAbortedCode;
using support::loss_of;
using support::noise_of;
using support::RankKind;
using support::real_of;
using support::run_ranks;
using support::SharedText;
using support::what_of;
using ::testing::HasSubstr;

std::string gan_hash(int ranks, bool together) {
  SharedText result;
  run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [&](auto group) {
    Gan gan(group, together);
    for (std::uint64_t step = 1; step <= 5; ++step) gan.train(step);
    if (group->rank() == ranks - 1) result.set(gan.hash());
  });
  return result.get();
}

TEST(TwoModels, HaveTheSameBitsOnAnyNumberOfRanks) {
  const std::string one = gan_hash(1, true);
  for (const int ranks : {1, 2, 3}) {
    EXPECT_EQ(gan_hash(ranks, false), one) << ranks;
    EXPECT_EQ(gan_hash(ranks, true), one) << ranks;
  }
}

TEST(TwoModels, ThatCommitTogetherAreNotJoined) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    Gan gan(group);
    EXPECT_THAT(what_of([&] { gan.d.join([] {}); }), HasSubstr("join() of a model that commits together with others"));
    gan.train(1);
    EXPECT_EQ(gan.d.steps(), 1u);
  });
}

// A model whose passes go through another one trains as in a loop of plain libtorch, on the whole batch.
TEST(TwoModels, TrainAsInAPlainLoop) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    const auto without_noise = [] {
      torch::manual_seed(3);
      return torch::nn::Sequential(torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
    };
    const auto plain_g = [] {
      torch::manual_seed(4);
      return torch::nn::Sequential(torch::nn::Linear(4, 8));
    };
    DistributedDataParallel d(without_noise(), group, {.name = "d"});
    DistributedDataParallel g(plain_g(), group, {.name = "g"});
    optim::SGD d_optimizer(d, {.lr = 0.1, .momentum = 0.9}), g_optimizer(g, {.lr = 0.1});
    commit_together(d, g);
    torch::nn::Sequential d_alone = without_noise(), g_alone = plain_g();
    torch::optim::SGD d_plain(d_alone->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    torch::optim::SGD g_plain(g_alone->parameters(), 0.1);
    for (std::uint64_t step = 1; step <= 20; ++step) {
      const at::Tensor noise = noise_of(step, 8), real = real_of(step, 8);
      const auto mine = [&](const at::Tensor& all) { return all.slice(0, 4 * group->rank(), 4 * group->rank() + 4); };
      const at::Tensor fake = g(mine(noise));
      (loss_of(d(mine(real)), true) + loss_of(d(fake.detach()), false)).backward();
      d_optimizer.step();
      loss_of(d(fake), true).backward();  // one forward of the generator, two backward passes behind it
      g_optimizer.step();
      d_optimizer.zero_grad();

      const at::Tensor plain_fake = g_alone->forward(noise);
      (loss_of(d_alone->forward(real), true) + loss_of(d_alone->forward(plain_fake.detach()), false)).backward();
      d_plain.step();
      g_plain.zero_grad();
      loss_of(d_alone->forward(plain_fake), true).backward();
      g_plain.step();
      d_plain.zero_grad();
    }
    const auto weights = d.state_dict();
    for (const auto& entry : d_alone->named_parameters())
      EXPECT_TRUE(torch::allclose(weights.at(entry.key()), entry.value(), 1e-4, 1e-6)) << entry.key();
    const auto g_weights = g.state_dict();
    for (const auto& entry : g_alone->named_parameters())
      EXPECT_TRUE(torch::allclose(g_weights.at(entry.key()), entry.value(), 1e-4, 1e-6)) << entry.key();
  });
}

TEST(TwoModels, OfOneNameAreRefused) {
  run_ranks(RankKind::single, 1, [](auto group) {
    DistributedDataParallel first(torch::nn::Linear(2, 2), group), second(torch::nn::Linear(2, 2), group);
    optim::SGD optimizer(first, {.lr = 1});
    EXPECT_THAT(what_of([&] { optim::SGD(second, {.lr = 1}); }), HasSubstr("give each model a name of its own"));
  });
}

TEST(TwoModels, ThatCommitTogetherTakeTurns) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    Gan gan(group);
    gan.train(1);
    gan.train_d(2);
    EXPECT_EQ(gan.d.steps(), 2u);
    EXPECT_THAT(what_of([&] { gan.train_d(3); }), HasSubstr("the model named 'd' has made step 2"));
    EXPECT_THAT(what_of([&] { gan.d.modify([] {}); }), HasSubstr("the model named 'd' has made step 2"));
    gan.d_optimizer.zero_grad();
    gan.train_g(2);
    gan.train(3);
    EXPECT_EQ(gan.g.steps(), 3u);
    EXPECT_THAT(what_of([&] { commit_together(gan.d, gan.g); }), HasSubstr("with others already"));
    EXPECT_THAT(what_of([&] { commit_together(gan.d); }), HasSubstr("two models or more"));
  });
}

// A worker dies between the two, or at some instruction of either step: the next generation finds both at one step and
// goes on to the bits of the undisturbed job.
TEST(TwoModels, ADeathBetweenTheirStepsTearsNothing) {
  constexpr std::uint64_t kSteps = 5;
  const auto hash_after = [](std::uint64_t steps) {
    SharedText result;
    run_ranks(RankKind::single, 1, [&](auto group) {
      Gan gan(group);
      for (std::uint64_t step = 1; step <= steps; ++step) gan.train(step);
      result.set(gan.hash());
    });
    return result.get();
  };
  const std::string wanted = hash_after(kSteps);
  struct Death {
    bool in_g;
    base::Phase phase;  // forward: right before the step of that model
    unsigned instructions;
  };
  std::vector<Death> deaths = {{false, base::Phase::forward, 0}, {true, base::Phase::forward, 0}};
  for (const bool in_g : {false, true})
    for (const base::Phase phase : {base::Phase::update, base::Phase::vote, base::Phase::flip})
      for (const unsigned instructions : {0u, 40u, 300u}) deaths.push_back({in_g, phase, instructions});
  for (const Death& death : deaths) {
    for (const int ranks : {1, 2}) {
      base::Segment segment = base::Segment::create(ranks);
      for (const pid_t pid : support::start_ranks(segment, [&](auto group) {
             try {
               Gan gan(group);
               gan.train(1);
               gan.train(2);
               const auto strike = [&] {
                 if (group->rank() != ranks - 1) return;
                 if (death.phase == base::Phase::forward) kill(getpid(), SIGKILL);
                 support::lay({.phase = death.phase, .instructions = death.instructions, .signal = SIGKILL},
                              group->node().member.words());
               };
               if (!death.in_g) strike();
               gan.train_d(3);
               if (death.in_g) strike();
               gan.train_g(3);
               gan.train(4);
             } catch (const GroupAborted&) {
               return kAbortedCode;
             }
             return 0;
           }))
        EXPECT_TRUE(support::wait_for(pid));
      segment = base::next_generation(std::move(segment), 1);
      const auto pids = support::start_ranks(segment, [&](auto group) {
        Gan gan(group);
        EXPECT_EQ(gan.d.steps(), gan.g.steps());
        EXPECT_GE(gan.d.steps(), 2u);
        for (std::uint64_t step = gan.d.next_step(); step <= kSteps; ++step) gan.train(step);
        EXPECT_EQ(gan.hash(), wanted);
        return ::testing::Test::HasFailure() ? 1 : 0;
      });
      EXPECT_TRUE(support::exited_with(support::wait_for(pids.front()), 0))
          << (death.in_g ? "g" : "d") << " in '" << base::to_string(death.phase) << "' after " << death.instructions
          << " instructions, " << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
