#include "lockstep/models/mobilenet.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/models/feature_net.h"
#include "lockstep/models/head.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

// Blocks of one width; the first has the stride.
struct MobileStage {
  std::int64_t expansion, out;
  int blocks;
  std::int64_t stride;
};

// Table 2 of the paper.
constexpr MobileStage kMobileStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                         {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
constexpr std::int64_t kMobileFirst = 32;
constexpr std::int64_t kMobileLast = 1280;

// Widens, convolves each channel alone and narrows without an activation; what comes in is added where it fits.
class InvertedResidual : public nn::Module {
 public:
  InvertedResidual(std::int64_t in, const MobileStage& stage, std::int64_t stride)
      : residual_(stride == 1 && in == stage.out) {
    const std::int64_t wide = in * stage.expansion;
    if (stage.expansion != 1) conv_->push_back(conv_norm({.in = in, .out = wide, .kernel = 1}, Activation::relu6));
    conv_->push_back(
        conv_norm({.in = wide, .out = wide, .kernel = 3, .stride = stride, .groups = wide}, Activation::relu6));
    conv_->push_back(convolution({.in = wide, .out = stage.out, .kernel = 1}));
    conv_->push_back(nn::BatchNorm2d(stage.out));
    register_module("conv", conv_);
  }

  at::Tensor forward(const at::Tensor& x) { return residual_ ? x + conv_->forward(x) : conv_->forward(x); }

 private:
  bool residual_;
  Row conv_;
};

Row mobile_features(std::int64_t channels) {
  Row row;
  row->push_back(conv_norm({.in = channels, .out = kMobileFirst, .kernel = 3, .stride = 2}, Activation::relu6));
  std::int64_t in = kMobileFirst;
  for (const MobileStage& stage : kMobileStages) {
    for (int i = 0; i < stage.blocks; ++i) {
      row->push_back(InvertedResidual(in, stage, i == 0 ? stage.stride : 1));
      in = stage.out;
    }
  }
  row->push_back(conv_norm({.in = in, .out = kMobileLast, .kernel = 1}, Activation::relu6));
  return row;
}

}  // namespace

std::shared_ptr<ImageModel> make_mobilenet_v2(const ImageTask& task) {
  const Row features = mobile_features(task.channels);
  const Head head(nn::Dropout(0.2), nn::Linear(kMobileLast, task.classes));
  const auto model = std::make_shared<FeatureNet>(features, 1, head.ptr());
  draw_convolutions(*model, torch::kFanOut);
  for_each_layer<nn::Linear>(*model, [](nn::LinearImpl& layer) {
    nn::init::normal_(layer.weight, 0, 0.01);
    nn::init::zeros_(layer.bias);
  });
  return model;
}

}  // namespace lockstep::models
