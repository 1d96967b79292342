#include "benchmarks/step/workload.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <utility>

#include "benchmarks/step/encoder.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/models/registry.h"

namespace lockstep::bench {
namespace {

// Linear layers of the given widths with ReLU between them.
class Perceptron : public models::ImageModel {
 public:
  explicit Perceptron(const std::vector<std::int64_t>& widths) {
    for (std::size_t i = 1; i < widths.size(); ++i) {
      if (i > 1) layers_->push_back(torch::nn::ReLU());
      layers_->push_back(torch::nn::Linear(widths[i - 1], widths[i]));
    }
    register_module("layers", layers_);
  }
  at::Tensor forward(at::Tensor samples) override { return layers_->forward(samples); }

 private:
  torch::nn::Sequential layers_;
};

auto perceptron(std::vector<std::int64_t> widths) {
  return [widths = std::move(widths)] { return std::make_shared<Perceptron>(widths); };
}

auto sgd(optim::SGDOptions options) {
  return [options](optim::Target& target) { return std::make_unique<optim::SGD>(target, options); };
}

auto adam(optim::AdamOptions options) {
  return [options](optim::Target& target) { return std::make_unique<optim::Adam>(target, options); };
}

// torchvision's net on ImageNet's pictures.
Workload of_photographs(const std::string& name, const std::string& model, const std::string& title,
                        std::int64_t batch) {
  const models::ImageTask task{.channels = 3, .height = 224, .width = 224, .classes = 1000};
  return {name,
          title + " at 224 x 224, SGD with momentum",
          {task.channels, task.height, task.width},
          task.classes,
          batch,
          [model, task] { return models::make_model(model, task); },
          sgd({.lr = 0.01, .momentum = 0.9}),
          /*by_name=*/true};
}

std::vector<Workload> make_workloads() {
  const auto wide = perceptron({1024, 4096, 4096, 1024});
  return {
      {"mlp", "MLP 64-64-10, SGD", {64}, 10, 32, perceptron({64, 64, 10}), sgd({.lr = 0.01})},
      {"convnet",
       "MNIST ConvNet, SGD",
       {1, 28, 28},
       10,
       100,
       [] { return models::make_model("convnet"); },
       sgd({.lr = 0.001})},
      {"wide_mlp_sgd",
       "MLP 1024-4096-4096-1024, SGD with momentum",
       {1024},
       1024,
       16,
       wide,
       sgd({.lr = 0.001, .momentum = 0.9})},
      {"wide_mlp_adam", "MLP 1024-4096-4096-1024, Adam", {1024}, 1024, 16, wide, adam({.lr = 1e-4})},
      {"resnet18_cifar",
       "ResNet-18 with CIFAR stem, SGD with momentum",
       {3, 32, 32},
       10,
       64,
       [] { return models::make_model("resnet18_cifar", {.channels = 3, .height = 32, .width = 32}); },
       sgd({.lr = 0.01, .momentum = 0.9})},
      of_photographs("resnet34", "resnet34", "ResNet-34", 16),
      of_photographs("resnet34_b32", "resnet34", "ResNet-34", 32),
      of_photographs("resnet50", "resnet50", "ResNet-50", 16),
      of_photographs("resnet50_b32", "resnet50", "ResNet-50", 32),
      of_photographs("vgg11", "vgg11", "VGG-11", 16),
      {"encoder",
       "transformer encoder of 6 layers, 256 tokens, Adam",
       {kTokens, kWidth},
       10,
       8,
       [] { return std::make_shared<Encoder>(6, 10); },
       adam({.lr = 1e-4}),
       /*by_name=*/true},
  };
}

}  // namespace

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> table = make_workloads();
  return table;
}

std::vector<std::string> workload_names() {
  std::vector<std::string> names;
  for (const Workload& workload : workloads()) names.push_back(workload.name);
  return names;
}

std::vector<std::string> usual_workload_names() {
  std::vector<std::string> names;
  for (const Workload& workload : workloads())
    if (!workload.by_name) names.push_back(workload.name);
  return names;
}

int batches_of(const Workload& workload) {
  constexpr std::int64_t kMost = 64, kLeast = 4, kBytes = std::int64_t(64) << 20;
  std::int64_t bytes = workload.batch * std::int64_t(sizeof(float));
  for (const std::int64_t size : workload.sample) bytes *= size;
  return int(std::clamp(kBytes / bytes, kLeast, kMost));
}

const Workload& find_workload(const std::string& name) {
  for (const Workload& workload : workloads()) {
    if (workload.name == name) return workload;
  }
  throw UsageError("bench step: " + base::unknown_name("workload", name, workload_names()));
}

}  // namespace lockstep::bench
