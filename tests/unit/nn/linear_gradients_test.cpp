// What else may happen to a weight: its gradient is right, whether it came in its slot or not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/what_of.h"
#include "tests/unit/nn/linear_job.h"

namespace lockstep::nn {
namespace {

using ::testing::HasSubstr;

TEST(LinearGradients, AFurtherGradientOfAStepIsAdded) {
  // A weight used twice, passes added up, a graph gone through twice, two forwards in one graph.
  EXPECT_EQ(same_as_pytorchs(plain_step, {.prepare = [](Net& net) { net->uses = 2; }}), 3);
  EXPECT_EQ(same_as_pytorchs([](Ddp& ddp, Net& net, Found& found) {
              plain_step(ddp, net, found);
              loss_of(ddp(inputs({3, 6}))).backward();
              plain_step(ddp, net, found);
            }),
            3);
  EXPECT_EQ(same_as_pytorchs([](Ddp& ddp, Net&, Found&) {
              const at::Tensor loss = loss_of(ddp(inputs()));
              loss.backward({}, /*retain_graph=*/true);
              loss.backward();
            }),
            3);
  EXPECT_EQ(same_as_pytorchs([](Ddp& ddp, Net&, Found&) {
              const at::Tensor first = ddp(inputs()), second = ddp(inputs({3, 6}));
              (loss_of(first) + loss_of(second)).backward();
            }),
            3);
}

TEST(LinearGradients, AWeightUsedThreeTimesHasTheSumOfItsGradients) {
  const Job job{.prepare = [](Net& net) { net->uses = 3; }};
  const Found ours = train(true, plain_step, job), theirs = train(false, plain_step, job);
  EXPECT_EQ(ours.in_place, 9);
  for (std::size_t i = 0; i < ours.tensors.size(); ++i)
    EXPECT_TRUE(torch::allclose(ours.tensors[i], theirs.tensors[i], 1e-5, 1e-7)) << i;
}

TEST(LinearGradients, AutogradGradTakesItsGradientForItself) {
  EXPECT_EQ(same_as_pytorchs([](Ddp& ddp, Net& net, Found& found) {
              const at::Tensor loss = loss_of(ddp(inputs()));
              for (const auto& gradient : torch::autograd::grad({loss}, {net->fc2->weight, net->fc2->bias},
                                                                /*grad_outputs=*/{}, /*retain_graph=*/true)) {
                ASSERT_TRUE(gradient.defined());
                found.tensors.push_back(gradient.clone());
              }
              loss.backward();
            }),
            3);
  // Which is no backward.
  const Step only_asks = [](Ddp& ddp, Net& net, Found&) {
    torch::autograd::grad({loss_of(ddp(inputs()))}, net->parameters());
  };
  EXPECT_THAT(support::what_of([&] { train(true, only_asks); }), HasSubstr("'fc1.weight'"));
}

TEST(LinearGradients, GradientsOfGradientsAreRight) {
  EXPECT_EQ(same_as_pytorchs([](Ddp& ddp, Net&, Found& found) {
              at::Tensor x = inputs().requires_grad_(true);
              const at::Tensor loss = loss_of(ddp(x));
              const at::Tensor slope = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true,
                                                             /*create_graph=*/true)[0];
              found.tensors.push_back(slope.detach());
              (loss + slope.square().sum()).backward();
            }),
            3);
  EXPECT_EQ(same_as_pytorchs([](Ddp& ddp, Net&, Found&) {
              loss_of(ddp(inputs())).backward({}, /*retain_graph=*/true, /*create_graph=*/true);
            }),
            0)
      << "to be differentiated again";
}

// Throws on the way back.
struct Refuses : torch::autograd::Function<Refuses> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    throw std::runtime_error("no further");
  }
};

TEST(LinearGradients, ASlotThatABrokenBackwardHasWrittenIsNoGradient) {
  const Step broken = [](Ddp& ddp, Net& net, Found&) {
    net->behind = [](const at::Tensor& y) { return Refuses::apply(y); };
    EXPECT_THROW(loss_of(ddp(inputs())).backward(), std::runtime_error);
    net->behind = nullptr;
  };
  EXPECT_THAT(support::what_of([&] { train(true, broken); }), HasSubstr("ended by an exception"));
  const auto mended = [&](Ddp& ddp, Net& net, Found& found) {
    broken(ddp, net, found);
    EXPECT_THAT(support::what_of([&] { plain_step(ddp, net, found); }), HasSubstr("ended by an exception"));
    ddp.discard_gradients();
    plain_step(ddp, net, found);
  };
  const Found ours = train(true, mended);
  EXPECT_EQ(ours.in_place, 3 * (1 + 3));
  EXPECT_EQ(ours.weights, train(false, plain_step).weights);
}

TEST(LinearGradients, HooksOfOthersSeeTheGradient) {
  int seen = 0;
  const Job job{.prepare = [&seen](Net& net) {
    net->fc2->weight.register_hook([&seen](const at::Tensor& gradient) {
      ++seen;
      return gradient * 2;
    });
  }};
  EXPECT_EQ(same_as_pytorchs(plain_step, job), 2);
  EXPECT_EQ(seen, 2 * 3);
}

TEST(LinearGradients, OutsideAShardSaysSo) {
  at::manual_seed(3);
  Net net(true);
  Ddp ddp(net, std::make_shared<comm::SingleGroup>());
  const optim::SGD optimizer(ddp, {.lr = 0.1});
  EXPECT_THAT(support::what_of([&] { net->forward(inputs()).sum().backward(); }), HasSubstr("outside a shard"));
}

TEST(LinearGradients, WithAnOptimizerOfTorchGradientsAreInGrad) {
  for (const bool views : {false, true}) {
    std::vector<std::vector<at::Tensor>> found(2);
    const CountInPlace counted;
    for (const bool ours : {false, true}) {
      at::manual_seed(3);
      Net net(ours);
      Ddp ddp(net, std::make_shared<comm::SingleGroup>(), {.gradient_as_bucket_view = views});
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      for (int i = 0; i < 2; ++i) {
        {
          const auto alone = ddp.no_sync();
          loss_of(ddp(inputs({3, 6}))).backward();
        }
        loss_of(ddp(inputs())).backward();
        for (const at::Tensor& parameter : net->parameters()) found[ours].push_back(parameter.grad().clone());
        optimizer.step();
        for (const at::Tensor& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
      }
    }
    EXPECT_EQ(counted.count(), 0);
    for (std::size_t i = 0; i < found[0].size(); ++i) EXPECT_TRUE(torch::equal(found[0][i], found[1][i])) << i;
  }
}

TEST(LinearGradients, BehindTheEngineItIsPyTorchsAgain) {
  at::manual_seed(3);
  Net net(true);
  {
    Ddp ddp(net, std::make_shared<comm::SingleGroup>());
    const optim::SGD optimizer(ddp, {.lr = 0.1});
  }
  const CountInPlace counted;
  net->forward(inputs()).sum().backward();
  EXPECT_EQ(counted.count(), 0);
  EXPECT_TRUE(net->fc1->weight.grad().defined());
}

}  // namespace
}  // namespace lockstep::nn
