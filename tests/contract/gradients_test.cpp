// What a module may be and do, for both ways in which gradients are gathered: slots (an optimizer of ours) and buckets
// (one of torch::optim). Each case trains two ranks on halves of a batch and one plain copy on all of it, which must
// end with the same weights; or it is refused in one line, before anything is trained.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <algorithm>
#include <functional>

#include "lockstep/lockstep.h"
#include "tests/contract/gradient_cases.h"
#include "tests/support/ranks.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using ::testing::HasSubstr;

enum class Sink { slots, buckets };

std::shared_ptr<Net> net_of(const Case& tested) {
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  tested.build(*net);
  return net;
}

Tensor half_of(const Case& tested, int step, int half) {
  torch::manual_seed(100 + step);
  return torch::randn({8, 6}).narrow(0, 4 * half, 4).to(tested.dtype);
}

constexpr int kSteps = 4;
constexpr double kRate = 0.1, kMomentum = 0.9;

torch::optim::SGD plain_optimizer(Net& net) {
  std::vector<Tensor> parameters;  // tied ones once
  for (const Tensor& one : net.parameters())
    if (std::none_of(parameters.begin(), parameters.end(), [&](const Tensor& other) { return other.is_same(one); }))
      parameters.push_back(one);
  return torch::optim::SGD(parameters, torch::optim::SGDOptions(kRate).momentum(kMomentum));
}

// What is trained in one process, on both halves.
std::shared_ptr<Net> trained_alone(const Case& tested) {
  auto net = net_of(tested);
  torch::optim::SGD optimizer = plain_optimizer(*net);
  const Forward forward = [&](const Tensor& x, const Body& body) { return net->forward(x, body); };
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    ((tested.loss(forward, half_of(tested, step, 0), 0) + tested.loss(forward, half_of(tested, step, 1), 1)) / 2)
        .backward();
    optimizer.step();
  }
  return net;
}

void train(const Case& tested, Sink sink, const std::shared_ptr<comm::Group>& group) {
  auto net = net_of(tested);
  DistributedDataParallel ddp(net, group, {.find_unused_parameters = tested.unused});
  const Forward forward = [&](const Tensor& x, const Body& body) { return ddp(x, body); };
  const auto loss = [&](int step) { return tested.loss(forward, half_of(tested, step, group->rank()), group->rank()); };
  const auto throw_in_backward = [&](int step, auto& optimizer) {
    if (!tested.throws || step != 1) return;
    Fragile::throws = true;
    EXPECT_THROW(loss(step).backward(), std::runtime_error);
    Fragile::throws = false;
    optimizer.zero_grad();
  };
  if (sink == Sink::slots) {
    optim::SGD optimizer(ddp, {.lr = kRate, .momentum = kMomentum});
    for (int step = 0; step < kSteps; ++step) {
      throw_in_backward(step, optimizer);
      loss(step).backward();
      optimizer.step();
    }
  } else {
    torch::optim::SGD optimizer = plain_optimizer(*net);
    for (int step = 0; step < kSteps; ++step) {
      throw_in_backward(step, optimizer);
      optimizer.zero_grad();
      loss(step).backward();
      optimizer.step();
    }
  }
  const auto alone = trained_alone(tested);
  for (const auto& entry : alone->named_parameters()) {
    const Tensor mine = ddp.state_dict().at(entry.key()).to(at::kDouble);
    const Tensor wanted = entry.value().detach().to(at::kDouble);
    EXPECT_TRUE(at::allclose(mine, wanted, tested.tolerance, tested.tolerance)) << entry.key() << " is\n"
                                                                                << mine << "\nand alone\n"
                                                                                << wanted;
  }
  EXPECT_FALSE(at::equal((*net_of(tested))["w"], (*alone)["w"])) << "nothing was trained";
  const std::string hash = ddp.weights_hash();
  const Tensor first = at::full({1}, std::int64_t(std::hash<std::string>()(hash)), at::kLong);
  for (const Tensor& other : group->all_gather(first)) EXPECT_TRUE(at::equal(other, first)) << "ranks differ";
}

class GradientSink : public testing::TestWithParam<std::tuple<Sink, Case>> {};
INSTANTIATE_TEST_SUITE_P(Modules, GradientSink,
                         testing::Combine(testing::Values(Sink::slots, Sink::buckets), testing::ValuesIn(cases())),
                         [](const auto& tested) {
                           const bool slots = std::get<0>(tested.param) == Sink::slots;
                           return std::string(slots ? "Slots" : "Buckets") + std::get<1>(tested.param).name;
                         });

TEST_P(GradientSink, TrainsAsOneProcessOrRefuses) {
  const auto& [sink, tested] = GetParam();
  const auto body = [&, sink = sink, &tested = tested](auto group) {
    if (sink == Sink::slots && tested.slots_refuse != nullptr) {
      const std::string refusal = support::what_of([&] {
        DistributedDataParallel ddp(net_of(tested), group);
        optim::SGD(ddp, {.lr = kRate});
      });
      EXPECT_THAT(refusal, HasSubstr(tested.slots_refuse));
      EXPECT_EQ(refusal.find('\n'), std::string::npos);
    } else {
      train(tested, sink, group);
    }
  };
  for (const support::RankKind kind : {support::RankKind::processes, support::RankKind::nodes})
    support::run_ranks(kind, 2, body);
}

class EachSink : public testing::TestWithParam<Sink> {
 protected:
  // With the optimizer that the sink is of.
  static void step(Engine& ddp, const std::function<void()>& backward) {
    if (GetParam() == Sink::slots) {
      optim::SGD optimizer(ddp, {.lr = kRate});
      backward();
      optimizer.step();
    } else {
      torch::optim::SGD optimizer(ddp.module().parameters(), kRate);
      backward();
      optimizer.step();
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Jobs, EachSink, testing::Values(Sink::slots, Sink::buckets),
                         [](const auto& info) { return info.param == Sink::slots ? "Slots" : "Buckets"; });

// The second one's loss goes through the first.
TEST_P(EachSink, TwoModelsOnOneGroup) {
  support::run_ranks(support::RankKind::processes, 2, [](auto group) {
    const Case tested = cases()[1];
    DistributedDataParallel g(net_of(tested), group, {.name = "g"}), d(net_of(tested), group, {.name = "d"});
    const auto alone_g = net_of(tested), alone_d = net_of(tested);
    Tensor wanted;
    for (int half = 0; half < 2; ++half) {
      const Tensor y = alone_d->forward(alone_g->forward(half_of(tested, 0, half), linear).first, linear).first;
      const Tensor loss = mean_square(y) / 2;
      wanted = half == 0 ? loss : wanted + loss;
    }
    wanted.backward();
    step(g, [&] {
      step(d, [&] { mean_square(d(g(half_of(tested, 0, group->rank()), linear).first, linear).first).backward(); });
    });
    for (const auto& [ddp, alone] : {std::pair{&g, alone_g}, std::pair{&d, alone_d}})
      EXPECT_TRUE(at::allclose(ddp->state_dict().at("w"), (*alone)["w"] - kRate * (*alone)["w"].grad(), 1e-5, 1e-6));
  });
}

TEST_P(EachSink, SparseGradientsOfAFunctionAreRefused) {
  support::run_ranks(support::RankKind::processes, 2, [](auto group) {
    auto net = std::make_shared<Net>();
    net->add("table", {4, 2});
    DistributedDataParallel ddp(net, group);
    const Body body = [](const Net& net, const Tensor& in) {
      return Pair{at::embedding(net["table"], in, -1, false, /*sparse=*/true), {}};
    };
    const std::string refusal = support::what_of([&] {
      step(ddp, [&] { ddp(torch::tensor({0, 1}), body).first.sum().backward(); });
    });
    EXPECT_THAT(refusal, HasSubstr("table"));
    EXPECT_THAT(refusal, HasSubstr("sparse gradient"));
    EXPECT_EQ(refusal.find('\n'), std::string::npos);
  });
}

TEST(SparseGradients, AreRefusedWhereTheModelIsWrapped) {
  support::run_ranks(support::RankKind::single, 1, [](auto group) {
    struct Words : torch::nn::Module {
      torch::nn::Embedding table =
          register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)));
    };
    EXPECT_EQ(
        support::what_of([&] { Engine(std::make_shared<Words>(), group, {}); }),
        "module 'table': Embedding with sparse=true gives sparse gradients, and dense ones are averaged; leave it "
        "out");
  });
}

// Results of mixed precision come in float32, in containers, too.
TEST(ResultsInContainers, AreFloat32) {
  support::run_ranks(support::RankKind::single, 1, [](auto group) {
    struct Heads : torch::nn::Module {
      torch::nn::Linear one = register_module("one", torch::nn::Linear(4, 2));
      torch::nn::Linear two = register_module("two", torch::nn::Linear(4, 3));
      std::tuple<Tensor, std::vector<Tensor>, int> forward(const Tensor& x) { return {one(x), {two(x)}, 7}; }
    };
    DistributedDataParallel ddp(std::make_shared<Heads>(), group, {.amp = Amp::bf16});
    optim::SGD optimizer(ddp, {.lr = 0.1});
    const auto [one, more, number] = ddp(torch::ones({2, 4}));
    EXPECT_EQ(one.scalar_type(), at::kFloat);
    EXPECT_EQ(more[0].scalar_type(), at::kFloat);
    EXPECT_EQ(number, 7);
    (one.sum() + more[0].sum()).backward();
    optimizer.step();
    EXPECT_EQ(ddp.steps(), 1u);
  });
}

}  // namespace
}  // namespace lockstep::parallel
