#pragma once

// The modules of gradients_test.cpp: what each has, and the loss that it is trained by.

#include <torch/autograd.h>
#include <torch/nn.h>

#include <functional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::parallel {

using at::Tensor;

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
  bool throws = false;  ///< a Fragile does, in a backward before the second step
};

inline void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

inline Pair linear(const Net& net, const Tensor& x) { return {at::matmul(x, net["w"]), {}}; }
inline Tensor mean_square(const Tensor& x) { return (x - 0.5).square().mean(); }

// y = 2 x, by a backward of its own.
struct Doubled : torch::autograd::Function<Doubled> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list grads) {
    return {grads[0] * 2};
  }
};

// y = x, whose backward throws when it is told to.
struct Fragile : torch::autograd::Function<Fragile> {
  static inline bool throws = false;
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list grads) {
    if (throws) throw std::runtime_error("fragile");
    return grads;
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

inline std::vector<Case> cases() {
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
      {"TiedUnderTwoNames",
       [](Net& net) {
         net.register_parameter("v", net.add("w", {6, 6}));
       },
       [](const Forward& forward, const Tensor& x, int) {
         return mean_square(forward(x, [](const Net& net, const Tensor& in) {
                              return Pair{at::matmul(at::tanh(at::matmul(in, net["w"])), net["v"].t()), {}};
                            }).first);
       }},
      {"AnExceptionInBackward",
       [](Net& net) {
         net.add("w", {6, 6}), net.add("v", {6, 3});
       },
       [](const Forward& forward, const Tensor& x, int) {
         return mean_square(forward(x, [](const Net& net, const Tensor& in) {
                              return Pair{at::matmul(Fragile::apply(at::matmul(in, net["w"])), net["v"]), {}};
                            }).first);
       },
       false, at::kFloat, 1e-5, nullptr, /*throws=*/true},
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

}  // namespace lockstep::parallel
