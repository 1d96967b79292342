#include "tests/support/device/replica_cases.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

#include "lockstep/parallel/data_parallel.h"

namespace lockstep::support {
namespace {

struct CutLayersImpl : torch::nn::Cloneable<CutLayersImpl> {
  CutLayersImpl() { CutLayersImpl::reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    last = register_module("last", torch::nn::Linear(8, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return last(torch::tanh(norm(first(x)))); }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(CutLayers);

CutLayers cut_layers(at::Device device) {
  torch::manual_seed(0);
  CutLayers layers;
  layers->to(device);
  return layers;
}

}  // namespace

struct CutNet::Parts {
  explicit Parts(const std::vector<at::Device>& devices)
      : layers(cut_layers(devices.front())), model(layers, devices), first(devices.front()) {}
  CutLayers layers;
  parallel::DataParallel<CutLayers> model;
  at::Device first;
};

CutNet::CutNet(const std::vector<at::Device>& devices) : parts_(std::make_unique<Parts>(devices)) {}
CutNet::~CutNet() = default;

std::vector<at::Tensor> CutNet::train(int steps) {
  std::vector<at::Tensor> found;
  for (int step = 0; step < steps; ++step) {
    at::Generator generator = at::detail::createCPUGenerator(std::uint64_t(step));
    const at::Tensor x = at::randn({11, 6}, generator).to(parts_->first).requires_grad_(true);
    parts_->layers->zero_grad();
    const at::Tensor output = parts_->model(x);
    output.pow(2).mean().backward();
    found.push_back(output.detach().cpu());
    found.push_back(x.grad().cpu());
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : parts_->layers->parameters()) parameter.sub_(parameter.grad(), 0.1);
  }
  for (const at::Tensor& parameter : parts_->layers->parameters()) {
    EXPECT_EQ(parameter.grad().device(), parts_->first);
    found.push_back(parameter.detach().cpu().clone());
    found.push_back(parameter.grad().cpu().clone());
  }
  for (const at::Tensor& buffer : parts_->layers->buffers()) found.push_back(buffer.cpu().clone());
  return found;
}

void expect_close(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(torch::allclose(found[i], wanted[i], 1e-4, 1e-5)) << i << found[i] << wanted[i];
}

}  // namespace lockstep::support
