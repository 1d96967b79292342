#include "lockstep/models/densenet.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <string>
#include <vector>

#include "lockstep/models/feature_net.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kBottleneckWidth = 4;  // of a layer's 3x3 convolution, in growths

// The new channels of a layer.
class DenseLayerImpl : public nn::Module {
 public:
  DenseLayerImpl(std::int64_t in, std::int64_t growth)
      : norm1_(in),
        conv1_(convolution({.in = in, .out = kBottleneckWidth * growth, .kernel = 1})),
        norm2_(kBottleneckWidth * growth),
        conv2_(convolution({.in = kBottleneckWidth * growth, .out = growth, .kernel = 3})) {
    register_module("norm1", norm1_);
    register_module("conv1", conv1_);
    register_module("norm2", norm2_);
    register_module("conv2", conv2_);
  }

  at::Tensor forward(const at::Tensor& x) { return conv2_(norm2_(conv1_(norm1_(x).relu_())).relu_()); }

 private:
  nn::BatchNorm2d norm1_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d norm2_;
  nn::Conv2d conv2_;
};
TORCH_MODULE(DenseLayer);

// Each layer reads what came in and what all layers before it made.
class DenseBlock : public nn::Module {
 public:
  DenseBlock(std::int64_t in, std::int64_t growth, int layers) {
    for (int i = 0; i < layers; ++i)
      layers_.push_back(register_module("denselayer" + std::to_string(i + 1), DenseLayer(in + i * growth, growth)));
  }

  at::Tensor forward(const at::Tensor& x) {
    std::vector<at::Tensor> made = {x};
    for (DenseLayer& layer : layers_) made.push_back(layer(at::cat(made, 1)));
    return at::cat(made, 1);
  }

 private:
  std::vector<DenseLayer> layers_;
};

Row transition(std::int64_t in) {
  Row row;
  row->push_back("norm", nn::BatchNorm2d(in));
  row->push_back("relu", relu());
  row->push_back("conv", convolution({.in = in, .out = in / 2, .kernel = 1}));
  row->push_back("pool", nn::AvgPool2d(2));
  return row;
}

struct DenseFeatures {
  Row row;
  std::int64_t channels;
};

DenseFeatures dense_features(const DenseNetKind& kind, std::int64_t channels) {
  Row row;
  row->push_back("conv0", convolution({.in = channels, .out = kind.first, .kernel = 7, .stride = 2}));
  row->push_back("norm0", nn::BatchNorm2d(kind.first));
  row->push_back("relu0", relu());
  row->push_back("pool0", nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  std::int64_t made = kind.first;
  for (std::size_t i = 0; i < kind.layers.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    row->push_back("denseblock" + number, DenseBlock(made, kind.growth, kind.layers[i]));
    made += kind.layers[i] * kind.growth;
    if (i + 1 == kind.layers.size()) break;
    row->push_back("transition" + number, transition(made));
    made /= 2;
  }
  row->push_back("norm5", nn::BatchNorm2d(made));
  row->push_back("relu5", relu());  // torchvision's forward() has it; a layer without weights bears no name
  return {row, made};
}

}  // namespace

std::shared_ptr<ImageModel> make_densenet(const DenseNetKind& kind, const ImageTask& task) {
  const DenseFeatures features = dense_features(kind, task.channels);
  const nn::Linear classifier(features.channels, task.classes);
  const auto model = std::make_shared<FeatureNet>(features.row, 1, classifier.ptr());
  draw_convolutions(*model, torch::kFanIn);
  nn::init::zeros_(classifier->bias);
  return model;
}

}  // namespace lockstep::models
