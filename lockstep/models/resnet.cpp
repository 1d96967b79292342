#include "lockstep/models/resnet.h"

#include <torch/nn/functional/pooling.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include <string>

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// x + what the convolutions make of it. Where the shapes differ, `downsample` fits x.
class Block : public nn::Module {
 public:
  static constexpr std::int64_t kBottleneckExpansion = 4;

  Block(bool bottleneck, std::int64_t in, std::int64_t planes, std::int64_t stride, nn::Sequential downsample)
      : downsample_(std::move(downsample)) {
    if (bottleneck) {
      add(convolution(in, planes, 1));
      add(convolution(planes, planes, 3, stride));
      add(convolution(planes, planes * kBottleneckExpansion, 1));
    } else {
      add(convolution(in, planes, 3, stride));
      add(convolution(planes, planes, 3));
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
  void add(const nn::Conv2d& convolution) {
    const std::string number = std::to_string(convolutions_.size() + 1);
    convolutions_.emplace_back(register_module("conv" + number, convolution));
    norms_.emplace_back(register_module("bn" + number, nn::BatchNorm2d(convolution->options.out_channels())));
  }

  std::vector<nn::Conv2d> convolutions_;
  std::vector<nn::BatchNorm2d> norms_;
  nn::Sequential downsample_;
};

}  // namespace

// The order of construction is the order in which the generator is drawn from, as in torchvision.
ResNet::ResNet(const ResNetKind& kind, std::int64_t channels, std::int64_t classes)
    : ImageModel("ResNet"), small_pictures_(kind.small_pictures) {
  conv1_ = register_module("conv1", small_pictures_ ? convolution(channels, 64, 3) : convolution(channels, 64, 7, 2));
  bn1_ = register_module("bn1", nn::BatchNorm2d(64));
  for (int i = 0; i < 4; ++i) {
    const std::string name = "layer" + std::to_string(i + 1);
    layers_[i] = register_module(name, layer(kind, std::int64_t(64) << i, kind.blocks[i], i == 0 ? 1 : 2));
  }
  register_module("fc", nn::Linear(planes_, classes));
  draw_weights();
}

nn::Sequential ResNet::layer(const ResNetKind& kind, std::int64_t planes, int blocks, std::int64_t stride) {
  const std::int64_t out = kind.bottleneck ? planes * Block::kBottleneckExpansion : planes;
  nn::Sequential layer;
  for (int i = 0; i < blocks; ++i) {
    nn::Sequential downsample{nullptr};
    if (i == 0 && (stride != 1 || planes_ != out))
      downsample = nn::Sequential(convolution(planes_, out, 1, stride), nn::BatchNorm2d(out));
    layer->push_back(Block(kind.bottleneck, planes_, planes, i == 0 ? stride : 1, downsample));
    planes_ = out;
  }
  return layer;
}

void ResNet::draw_weights() {
  for (const auto& module : modules(/*include_self=*/false))
    if (const auto* convolution = module->as<nn::Conv2d>())
      nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
}

at::Tensor ResNet::forward(at::Tensor images) {
  at::Tensor x = bn1_(conv1_(images)).relu_();
  if (!small_pictures_) x = nn::functional::max_pool2d(x, nn::functional::MaxPool2dFuncOptions(3).stride(2).padding(1));
  for (nn::Sequential& layer : layers_) x = layer->forward(x);
  return through("fc", at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
}

}  // namespace lockstep::models
