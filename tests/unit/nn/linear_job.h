#pragma once

// A net of linear layers, ours or PyTorch's, trained for three steps.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/lockstep.h"
#include "lockstep/nn/linear.h"

namespace lockstep::nn {

inline thread_local int in_place = 0;

// Products that have their memory given, which PyTorch's own backward never gives.
class CountInPlace {
 public:
  CountInPlace() {
    in_place = 0;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
      const auto name = function.operator_name();
      if (name && name->name == "aten::mm" && name->overload_name == "out") ++in_place;
      return std::unique_ptr<at::ObserverContext>();
    }));
  }
  ~CountInPlace() { at::removeCallback(handle_); }
  CountInPlace(const CountInPlace&) = delete;
  CountInPlace& operator=(const CountInPlace&) = delete;
  int count() const { return in_place; }

 private:
  at::CallbackHandle handle_;
};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool ours) : fc1(layer(ours, 6, 10)), fc2(layer(ours, 10, 10)), fc3(layer(ours, 10, 4, false)) {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("fc3", fc3);
  }

  using Layer = std::shared_ptr<torch::nn::LinearImpl>;
  static Layer layer(bool ours, std::int64_t in, std::int64_t out, bool bias = true) {
    const auto options = torch::nn::LinearOptions(in, out).bias(bias);
    return ours ? std::make_shared<LinearImpl>(options) : std::make_shared<torch::nn::LinearImpl>(options);
  }
  static at::Tensor through(const Layer& layer, const at::Tensor& x) {
    if (auto* ours = dynamic_cast<LinearImpl*>(layer.get())) return ours->forward(x);
    return layer->forward(x);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = at::tanh(through(fc1, x));
    for (int i = 0; i < uses; ++i) y = at::tanh(through(fc2, y));
    return through(fc3, behind ? behind(y) : y);
  }

  Layer fc1, fc2, fc3;
  int uses = 1;  ///< of fc2
  std::function<at::Tensor(const at::Tensor&)> behind;
};
TORCH_MODULE(Net);

using Ddp = DistributedDataParallel<Net>;

inline at::Tensor inputs(const std::vector<std::int64_t>& sizes = {5, 6}) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(11));
}

inline at::Tensor loss_of(const at::Tensor& y) { return (y.to(at::kFloat) * y.to(at::kFloat)).mean() + y.sum() * 0.01; }

struct Job {
  parallel::DataParallelOptions options;
  std::shared_ptr<comm::Group> group = std::make_shared<comm::SingleGroup>();
  std::function<void(Net&)> prepare;
};

struct Found {
  std::string weights;
  int in_place = 0;
  std::vector<at::Tensor> tensors;
};

using Step = std::function<void(Ddp& ddp, Net& net, Found& found)>;

// Three steps.
inline Found train(bool ours, const Step& step, const Job& job = {}) {
  Net net(ours);
  {
    // Ranks that are threads share the process's generator.
    const at::NoGradGuard no_grad;
    auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
    for (at::Tensor& parameter : net->parameters()) parameter.normal_(0, 0.3, generator);
  }
  if (job.prepare) job.prepare(net);
  parallel::DataParallelOptions options = job.options;
  options.name = ours ? "ours" : "theirs";  // the group may carry both
  Ddp ddp(net, job.group, options);
  optim::SGD optimizer(ddp, {.lr = 0.3, .momentum = 0.5});
  Found found;
  const CountInPlace counted;
  for (int i = 0; i < 3; ++i) {
    step(ddp, net, found);
    optimizer.step();
  }
  found.weights = ddp.weights_hash();
  found.in_place = counted.count();
  for (const auto& [name, weight] : ddp.state_dict()) found.tensors.push_back(weight.clone());
  return found;
}

// That ours has the bits of PyTorch's; returns how many products per step it made in place.
inline double same_as_pytorchs(const Step& step, const Job& job = {}) {
  const Found ours = train(true, step, job), theirs = train(false, step, job);
  EXPECT_EQ(ours.weights, theirs.weights);
  EXPECT_EQ(theirs.in_place, 0);
  EXPECT_EQ(ours.tensors.size(), theirs.tensors.size());
  for (std::size_t i = 0; i < std::min(ours.tensors.size(), theirs.tensors.size()); ++i)
    EXPECT_TRUE(torch::equal(ours.tensors[i], theirs.tensors[i])) << i;
  return ours.in_place / 3.0;
}

inline void plain_step(Ddp& ddp, Net&, Found&) { loss_of(ddp(inputs())).backward(); }

}  // namespace lockstep::nn
