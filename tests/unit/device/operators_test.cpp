// Operators, modules and autograd on the stand-in device, beside the CPU.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <mutex>
#include <thread>

#include "lockstep/models/registry.h"
#include "tests/support/device/sim_device.h"

namespace lockstep::testing {
namespace {

class SimOperators : public ::testing::Test {
 protected:
  void SetUp() override { sim::install(2); }
};

using Losses = std::vector<double>;

struct Trained {
  std::vector<double> losses;
  std::vector<at::Tensor> state;  // parameters, gradients, buffers
};

// Three steps of SGD with momentum from the same weights, on one device.
Trained train(const std::function<std::shared_ptr<torch::nn::Module>()>& make,
              const std::function<at::Tensor(torch::nn::Module&, const at::Tensor&)>& forward, at::IntArrayRef shape,
              at::Device device) {
  torch::manual_seed(1);
  const std::shared_ptr<torch::nn::Module> model = make();
  const at::Tensor pictures = torch::randn(shape);
  const at::Tensor labels = torch::randint(0, 10, {shape[0]}, torch::kLong);
  model->to(device);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-4));
  Trained trained;
  for (int step = 0; step < 3; ++step) {
    sgd.zero_grad();
    const at::Tensor loss =
        torch::nll_loss(torch::log_softmax(forward(*model, pictures.to(device)), 1), labels.to(device));
    loss.backward();
    sgd.step();
    trained.losses.push_back(loss.item<double>());
  }
  for (const at::Tensor& parameter : model->parameters()) {
    trained.state.push_back(parameter.detach().cpu());
    trained.state.push_back(parameter.grad().cpu());
    EXPECT_EQ(parameter.device(), device);
    EXPECT_EQ(parameter.grad().device(), device);
  }
  for (const at::Tensor& buffer : model->buffers()) trained.state.push_back(buffer.cpu());
  return trained;
}

void expect_same_bits(const Trained& one, const Trained& other) {
  EXPECT_EQ(one.losses, other.losses);
  ASSERT_EQ(one.state.size(), other.state.size());
  for (std::size_t i = 0; i < one.state.size(); ++i) EXPECT_TRUE(at::equal(one.state[i], other.state[i])) << i;
}

std::shared_ptr<torch::nn::Module> small_net() {
  return torch::nn::Sequential(torch::nn::Linear(20, 16), torch::nn::ReLU(), torch::nn::Linear(16, 10)).ptr();
}

at::Tensor sequential(torch::nn::Module& model, const at::Tensor& input) {
  return model.as<torch::nn::SequentialImpl>()->forward(input);
}

at::Tensor image_model(torch::nn::Module& model, const at::Tensor& input) {
  return dynamic_cast<models::ImageModel&>(model).forward(input);
}

TEST_F(SimOperators, LinearAndReluTrainToTheBitsOfTheCpu) {
  expect_same_bits(train(small_net, sequential, {8, 20}, at::kCPU),
                   train(small_net, sequential, {8, 20}, sim::device(1)));
}

TEST_F(SimOperators, AConvNetTrainsToTheBitsOfTheCpu) {
  const auto make = [] { return models::make_model("convnet"); };
  expect_same_bits(train(make, image_model, {4, 1, 28, 28}, at::kCPU),
                   train(make, image_model, {4, 1, 28, 28}, sim::device()));
}

TEST_F(SimOperators, ResNetTrainsToTheBitsOfTheCpu) {
  const auto make = [] {
    return models::make_model("resnet18_cifar", {.channels = 3, .height = 8, .width = 8, .classes = 10});
  };
  expect_same_bits(train(make, image_model, {2, 3, 8, 8}, at::kCPU),
                   train(make, image_model, {2, 3, 8, 8}, sim::device()));
}

}  // namespace
}  // namespace lockstep::testing
