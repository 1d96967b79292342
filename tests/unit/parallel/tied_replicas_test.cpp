// DataParallel of a model in which a parameter has two names.

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn.h>

#include "lockstep/parallel/data_parallel.h"

namespace lockstep::parallel {
namespace {

// One parameter of two names; its replicas have one as well, or two that are no more tied.
struct TiedNetImpl : torch::nn::Cloneable<TiedNetImpl> {
  explicit TiedNetImpl(bool is_tied) : tied(is_tied) { TiedNetImpl::reset(); }
  void reset() override {
    fc = register_module("fc", torch::nn::Linear(3, 3));
    other = register_parameter("other", tied ? fc->weight : fc->weight.detach().clone());
  }
  at::Tensor forward(const at::Tensor& x) { return torch::matmul(torch::tanh(fc(x)), other); }
  bool tied;
  torch::nn::Linear fc{nullptr};
  at::Tensor other;
};
TORCH_MODULE(TiedNet);

TEST(TiedReplicas, CountAParameterOnce) {
  for (const bool replicas_are_tied : {true, false}) {
    torch::manual_seed(0);
    TiedNet net(true);
    DataParallel<TiedNet> model(net, {at::kCPU, at::kCPU}, [&](at::Device) { return TiedNet(replicas_are_tied); });
    const at::Tensor x = at::rand({8, 3});
    const at::Tensor wanted = torch::autograd::grad({net->forward(x).square().sum()}, {net->other})[0];
    for (int pass = 0; pass < 2; ++pass) {
      net->zero_grad();
      model(x).square().sum().backward();
      EXPECT_TRUE(torch::allclose(net->other.grad(), wanted, 1e-5, 1e-6)) << replicas_are_tied << pass;
    }
  }
  TiedNet net(true);
  const at::Tensor x = at::rand({8, 3});
  const auto replicas = replicate(net, {at::kCPU, at::kCPU});
  const auto outputs =
      parallel_apply(replicas, std::vector<std::tuple<at::Tensor>>{{x.narrow(0, 0, 4)}, {x.narrow(0, 4, 4)}});
  (outputs[0].square().sum() + outputs[1].square().sum()).backward();
  const at::Tensor wanted = torch::autograd::grad({net->forward(x).square().sum()}, {net->other})[0];
  EXPECT_TRUE(torch::allclose(net->other.grad(), wanted, 1e-5, 1e-6));
}

}  // namespace
}  // namespace lockstep::parallel
