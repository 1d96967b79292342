#include "lockstep/models/resnet.h"

#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/layers.h"
#include "lockstep/nn/batch_norm_relu.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;
using lockstep::nn::BatchNormAddReLU2dImpl;
using lockstep::nn::BatchNormReLU2dImpl;
using lockstep::nn::BatchNormReLUMaxPool2dImpl;
using lockstep::nn::fused;
using lockstep::nn::Fusion;

// relu(norm(x)), by one layer where fuse() has put one there.
at::Tensor norm_relu(nn::BatchNorm2dImpl& norm, const at::Tensor& x) {
  if (auto* fused = dynamic_cast<BatchNormReLU2dImpl*>(&norm)) return fused->forward(x);
  return norm.forward(x).relu_();
}

// x + what the convolutions make of it. Where the shapes differ, `downsample` fits x.
class Block : public nn::Module, public lockstep::nn::Fusible {
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
    for (std::size_t i = 0; i + 1 < convolutions_.size(); ++i) y = norm_relu(*norms_[i], convolutions_[i](y));
    y = convolutions_.back()(y);
    if (auto* fused = dynamic_cast<BatchNormAddReLU2dImpl*>(norms_.back().get())) return fused->forward(y, shortcut(x));
    y = norms_.back()->forward(y);
    y += shortcut(x);
    return y.relu_();
  }

  std::vector<Fusion> fuse_layers() override {
    std::vector<Fusion> done;
    for (std::size_t i = 0; i < norms_.size(); ++i) {
      const std::string name = "bn" + std::to_string(i + 1);
      const auto put = [&](auto layer, const char* from, const char* fused_name) {
        if (layer == nullptr) return;
        norms_[i] = replace_module(name, layer);
        done.push_back({name, from, fused_name});
      };
      if (i + 1 < norms_.size())
        put(fused<BatchNormReLU2dImpl>(*norms_[i]), "BatchNorm2d, ReLU", "BatchNormReLU2d");
      else
        put(fused<BatchNormAddReLU2dImpl>(*norms_[i]), "BatchNorm2d, +, ReLU", "BatchNormAddReLU2d");
    }
    return done;
  }

 private:
  at::Tensor shortcut(const at::Tensor& x) { return downsample_ ? downsample_->forward(x) : x; }

  void add(const ConvShape& shape) {
    const std::string number = std::to_string(convolutions_.size() + 1);
    convolutions_.emplace_back(register_module("conv" + number, convolution(shape)));
    norms_.push_back(register_module("bn" + number, std::make_shared<nn::BatchNorm2dImpl>(shape.out)));
  }

  std::vector<nn::Conv2d> convolutions_;
  std::vector<std::shared_ptr<nn::BatchNorm2dImpl>> norms_;
  nn::Sequential downsample_;
};

}  // namespace

// The order of construction is the order in which the generator is drawn from, as in torchvision.
ResNet::ResNet(const ResNetKind& kind, std::int64_t channels, std::int64_t classes)
    : ImageModel("ResNet"), small_pictures_(kind.small_pictures) {
  const std::int64_t kernel = small_pictures_ ? 3 : 7, stride = small_pictures_ ? 1 : 2;
  conv1_ = register_module("conv1", convolution({.in = channels, .out = 64, .kernel = kernel, .stride = stride}));
  bn1_ = register_module("bn1", std::make_shared<nn::BatchNorm2dImpl>(64));
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

std::vector<Fusion> ResNet::fuse_layers() {
  if (small_pictures_) {
    const auto layer = fused<BatchNormReLU2dImpl>(*bn1_);
    if (layer == nullptr) return {};
    bn1_ = replace_module("bn1", layer);
    return {{"bn1", "BatchNorm2d, ReLU", "BatchNormReLU2d"}};
  }
  const auto layer = fused<BatchNormReLUMaxPool2dImpl>(*bn1_, lockstep::nn::Pooling::stem);
  if (layer == nullptr) return {};
  bn1_ = replace_module("bn1", layer);
  return {{"bn1", "BatchNorm2d, ReLU, MaxPool2d", "BatchNormReLUMaxPool2d"}};
}

at::Tensor ResNet::stem(const at::Tensor& x) {
  if (auto* layer = dynamic_cast<BatchNormReLUMaxPool2dImpl*>(bn1_.get())) return layer->forward(x);
  const at::Tensor y = norm_relu(*bn1_, x);
  if (small_pictures_) return y;
  return nn::functional::max_pool2d(y, nn::functional::MaxPool2dFuncOptions(3).stride(2).padding(1));
}

at::Tensor ResNet::forward(at::Tensor images) {
  at::Tensor x = stem(conv1_(images));
  for (nn::Sequential& layer : layers_) x = layer->forward(x);
  return through("fc", at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
}

}  // namespace lockstep::models
