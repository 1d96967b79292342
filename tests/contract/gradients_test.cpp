// What a module may be and do, for both ways in which gradients are gathered: slots (an optimizer of ours) and buckets
// (one of torch::optim). Each case trains two ranks on halves of a batch and one plain copy on all of it, which must
// end with the same weights; or it is refused in one line, before anything is trained.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <functional>

#include "lockstep/lockstep.h"
#include "tests/support/ranks.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using at::Tensor;
using ::testing::HasSubstr;

enum class Sink { slots, buckets };

struct Pair {
  Tensor first;
  Tensor second;
};

// Parameters by name, and a forward pass of several inputs that gives a struct.
struct Net : torch::nn::Module {
  Tensor add(const std::string& name, at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    return register_parameter(name, torch::randn(sizes).to(dtype) * 0.3);
  }
  Tensor operator[](const std::string& name) const { return named_parameters()[name]; }
  Pair forward(const Tensor& x, const std::function<Pair(const Net&, const Tensor&)>& body) { return body(*this, x); }
};
using Body = std::function<Pair(const Net&, const Tensor&)>;
// A forward pass, of the wrapper or of the plain module.
using Forward = std::function<Pair(const Tensor& x, const Body& body)>;

struct Case {
  const char* name;
  std::function<void(Net&)> build;
  /// Of the samples x of a half of the batch.
  std::function<Tensor(const Forward& forward, const Tensor& x, int half)> loss;
  bool unused = false;  ///< parameters may be without a gradient
  at::ScalarType dtype = at::kFloat;
  double tolerance = 1e-5;
  const char* slots_refuse = nullptr;
};

void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

Pair linear(const Net& net, const Tensor& x) { return {at::matmul(x, net["w"]), {}}; }
Tensor mean_square(const Tensor& x) { return (x - 0.5).square().mean(); }

// y = 2 x, by a backward of its own.
struct Doubled : torch::autograd::Function<Doubled> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list grads) {
    return {grads[0] * 2};
  }
};

// As torch.utils.checkpoint: forward without a graph, and once more within backward.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& w) {
    context->save_for_backward({x, w});
    return at::tanh(at::matmul(x, w));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const torch::AutoGradMode with_graph(true);
    const Tensor x = saved[0].detach().requires_grad_(saved[0].requires_grad());
    at::tanh(at::matmul(x, saved[1])).backward(grads[0]);  // adds to the gradient of w
    return {x.grad(), Tensor()};
  }
};

std::vector<Case> cases() {
  return {
      {"SeveralInputsAndAStruct",
       [](Net& net) {
         net.add("w", {6, 3}), net.add("b", {3});
       },
       [](const Forward& forward, const Tensor& x, int) {
         const Pair y = forward(x, [](const Net& net, const Tensor& in) {
           return Pair{at::matmul(in, net["w"]), net["b"] * in.sum(0).narrow(0, 0, 3)};
         });
         return mean_square(y.first) + mean_square(y.second) * 0.1;
       }},
      {"AParameterUsedTwice",
       [](Net& net) {
         net.add("w", {6, 6});
       },
       [](const Forward& forward, const Tensor& x, int) {
         return mean_square(forward(x, [](const Net& net, const Tensor& in) {
                              return Pair{at::matmul(at::tanh(at::matmul(in, net["w"])), net["w"].t()), {}};
                            }).first);
       }},
      {"TwoForwardsBeforeOneBackward",
       [](Net& net) {
         net.add("w", {6, 3});
       },
       [](const Forward& forward, const Tensor& x, int) {
         return mean_square(forward(x, linear).first) + mean_square(forward(x * 2, linear).first);
       }},
      {"UnusedOnAllRanks",
       [](Net& net) {
         net.add("w", {6, 3}), net.add("idle", {5});
       },
       [](const Forward& forward, const Tensor& x, int) { return mean_square(forward(x, linear).first); },
       /*unused=*/true},
      {"UnusedOnOneRank",
       [](Net& net) {
         net.add("w", {6, 3}), net.add("side", {6, 3});
       },
       [](const Forward& forward, const Tensor& x, int half) {
         return mean_square(forward(x, [half](const Net& net, const Tensor& in) {
                              return Pair{at::matmul(in, half == 0 ? net["w"] + net["side"] : net["w"]), {}};
                            }).first);
       },
       /*unused=*/true},
      {"ScalarAndEmpty",
       [](Net& net) {
         net.add("w", {6, 3}), net.add("scale", {}), net.add("empty", {0, 4});
       },
       [](const Forward& forward, const Tensor& x, int) {
         return mean_square(forward(x, [](const Net& net, const Tensor& in) {
                              return Pair{at::matmul(in, net["w"]) * net["scale"] + net["empty"].sum(), {}};
                            }).first);
       }},
      {"OfOtherStrides",
       [](Net& net) {
         net.register_parameter("w", torch::randn({3, 6}).t() * 0.3);
         net.register_parameter("kernel",
                                (torch::randn({4, 2, 3, 3}) * 0.2).contiguous(at::MemoryFormat::ChannelsLast));
       },
       [](const Forward& forward, const Tensor& x, int) {
         const Pair y = forward(x, [](const Net& net, const Tensor& in) {
           const Tensor picture = at::cat({in, in, in}, 1).narrow(1, 0, 18).view({-1, 2, 3, 3});
           return Pair{at::matmul(in, net["w"]), at::conv2d(picture, net["kernel"])};
         });
         return mean_square(y.first) + mean_square(y.second);
       }},
      {"AFunctionOfOnesOwn",
       [](Net& net) {
         net.add("w", {6, 3});
       },
       [](const Forward& forward, const Tensor& x, int) {
         return mean_square(forward(x, [](const Net& net, const Tensor& in) {
                              return Pair{Doubled::apply(at::matmul(in, net["w"])), {}};
                            }).first);
       }},
      {"RecomputedInBackward",
       [](Net& net) {
         net.add("w", {6, 6}), net.add("v", {6, 3});
       },
       [](const Forward& forward, const Tensor& x, int) {
         return mean_square(forward(x, [](const Net& net, const Tensor& in) {
                              const Tensor input = in.detach().requires_grad_();
                              return Pair{at::matmul(Recomputed::apply(input, net["w"]), net["v"]), {}};
                            }).first);
       }},
      {"AGradientPenalty",
       [](Net& net) {
         net.add("w", {6, 6}), net.add("v", {6, 1});
       },
       [](const Forward& forward, const Tensor& x, int) {
         const Tensor input = x.detach().clone().requires_grad_();
         const Tensor y = forward(input, [](const Net& net, const Tensor& in) {
                            return Pair{at::matmul(at::tanh(at::matmul(in, net["w"])), net["v"]), {}};
                          }).first;
         const Tensor slope = torch::autograd::grad({y.sum()}, {input}, {}, /*retain_graph=*/true,
                                                    /*create_graph=*/true)[0];
         return mean_square(y) + (slope.norm(2, 1) - 1).square().mean();
       }},
      {"Float64",
       [](Net& net) {
         net.add("w", {6, 3}, at::kDouble);
       },
       [](const Forward& forward, const Tensor& x, int) { return mean_square(forward(x, linear).first); }, false,
       at::kDouble, 1e-12, "'w' is Double; the fused optimizers keep float32 parameters"},
      {"BFloat16",
       [](Net& net) {
         net.add("w", {6, 3}, at::kBFloat16);
       },
       [](const Forward& forward, const Tensor& x, int) { return mean_square(forward(x, linear).first); }, false,
       at::kBFloat16, 2e-2, "'w' is BFloat16; the fused optimizers keep float32 parameters"},
      {"Float16",
       [](Net& net) {
         net.add("w", {6, 3}, at::kHalf);
       },
       [](const Forward& forward, const Tensor& x, int) { return mean_square(forward(x, linear).first); }, false,
       at::kHalf, 2e-3, "'w' is Half; the fused optimizers keep float32 parameters"},
      {"OfTwoDtypes",
       [](Net& net) {
         net.add("w", {6, 3}), net.add("v", {3, 2}, at::kDouble);
       },
       [](const Forward& forward, const Tensor& x, int) {
         return mean_square(forward(x, [](const Net& net, const Tensor& in) {
                              return Pair{at::matmul(at::matmul(in, net["w"]).to(at::kDouble), net["v"]), {}};
                            }).first);
       },
       false, at::kFloat, 1e-5, "'v' is Double; the fused optimizers keep float32 parameters"},
  };
}

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
  return torch::optim::SGD(net.parameters(), torch::optim::SGDOptions(kRate).momentum(kMomentum));
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
  if (sink == Sink::slots) {
    optim::SGD optimizer(ddp, {.lr = kRate, .momentum = kMomentum});
    for (int step = 0; step < kSteps; ++step) {
      loss(step).backward();
      optimizer.step();
    }
  } else {
    torch::optim::SGD optimizer = plain_optimizer(*net);
    for (int step = 0; step < kSteps; ++step) {
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
