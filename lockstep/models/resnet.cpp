#include "lockstep/models/resnet.h"

#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/linear.h>

#include <string>

#include "lockstep/models/layers.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

// x + what the convolutions make of it. Where the shapes differ, `downsample` fits x.
class Block : public nn::Module {
 public:
  static constexpr std::int64_t kBottleneckExpansion = 4;

  Block(const ResNetKind& kind, std::int64_t in, std::int64_t planes, std::int64_t stride, nn::Sequential downsample)
      : downsample_(std::move(downsample)) {
    if (kind.bottleneck) {
      const std::int64_t width = planes * kind.group_width / 64 * kind.groups;
      add({.in = in, .out = width, .kernel = 1});
      add({.in = width, .out = width, .kernel = 3, .stride = stride, .groups = kind.groups});
      add({.in = width, .out = planes * kBottleneckExpansion, .kernel = 1});
    } else {
      add({.in = in, .out = planes, .kernel = 3, .stride = stride});
      add({.in = planes, .out = planes, .kernel = 3});
    }
    if (downsample_) register_module("downsample", downsample_);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = x;
    for (std::size_t i = 0; i < convolutions_.size(); ++i) {
      y = norms_[i](convolutions_[i](y));
      if (i + 1 < convolutions_.size()) y = y.relu_();
    }
    y += downsample_ ? downsample_->forward(x) : x;
    return y.relu_();
  }

 private:
  void add(const ConvShape& shape) {
    const std::string number = std::to_string(convolutions_.size() + 1);
    convolutions_.emplace_back(register_module("conv" + number, convolution(shape)));
    norms_.emplace_back(register_module("bn" + number, nn::BatchNorm2d(shape.out)));
  }

  std::vector<nn::Conv2d> convolutions_;
  std::vector<nn::BatchNorm2d> norms_;
  nn::Sequential downsample_;
};

}  // namespace

// The order of construction is the order in which the generator is drawn from, as in torchvision.
ResNet::ResNet(const ResNetKind& kind, std::int64_t channels, std::int64_t classes)
    : ImageModel("ResNet"), small_pictures_(kind.small_pictures) {
  const std::int64_t kernel = small_pictures_ ? 3 : 7, stride = small_pictures_ ? 1 : 2;
  conv1_ = register_module("conv1", convolution({.in = channels, .out = 64, .kernel = kernel, .stride = stride}));
  bn1_ = register_module("bn1", nn::BatchNorm2d(64));
  for (int i = 0; i < 4; ++i) {
    const std::string name = "layer" + std::to_string(i + 1);
    layers_[i] = register_module(name, layer(kind, std::int64_t(64) << i, kind.blocks[i], i == 0 ? 1 : 2));
  }
  register_module("fc", nn::Linear(planes_, classes));
  draw_convolutions(*this, torch::kFanOut);
}

nn::Sequential ResNet::layer(const ResNetKind& kind, std::int64_t planes, int blocks, std::int64_t stride) {
  const std::int64_t out = kind.bottleneck ? planes * Block::kBottleneckExpansion : planes;
  nn::Sequential layer;
  for (int i = 0; i < blocks; ++i) {
    nn::Sequential downsample{nullptr};
    if (i == 0 && (stride != 1 || planes_ != out))
      downsample =
          nn::Sequential(convolution({.in = planes_, .out = out, .kernel = 1, .stride = stride}), nn::BatchNorm2d(out));
    layer->push_back(Block(kind, planes_, planes, i == 0 ? stride : 1, downsample));
    planes_ = out;
  }
  return layer;
}

at::Tensor ResNet::forward(at::Tensor images) {
  at::Tensor x = bn1_(conv1_(images)).relu_();
  if (!small_pictures_) x = nn::functional::max_pool2d(x, nn::functional::MaxPool2dFuncOptions(3).stride(2).padding(1));
  for (nn::Sequential& layer : layers_) x = layer->forward(x);
  return through("fc", at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
}

}  // namespace lockstep::models
