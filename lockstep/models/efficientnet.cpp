#include "lockstep/models/efficientnet.h"

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "lockstep/models/feature_net.h"
#include "lockstep/models/head.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

// Blocks of one width; the first has the stride.
struct EfficientStage {
  std::int64_t expansion, kernel, stride, in, out;
  int blocks;
};

// Table 1 of the paper.
constexpr EfficientStage kEfficientStages[] = {{1, 3, 1, 32, 16, 1},  {6, 3, 2, 16, 24, 2},  {6, 5, 2, 24, 40, 2},
                                               {6, 3, 2, 40, 80, 3},  {6, 5, 1, 80, 112, 3}, {6, 5, 2, 112, 192, 4},
                                               {6, 3, 1, 192, 320, 1}};
constexpr int kEfficientBlocks = 16;
constexpr std::int64_t kEfficientLast = 1280;
constexpr double kStochasticDepth = 0.2;

// Huang et al., "Deep Networks with Stochastic Depth": each picture's row is zero with the probability p.
at::Tensor drop_rows(const at::Tensor& x, double p) {
  const at::Tensor kept = at::empty({x.size(0), 1, 1, 1}, x.options());
  return x * kept.bernoulli_(1 - p).div_(1 - p);
}

// Widens, convolves each channel alone, weighs the channels and narrows.
class MbConv : public nn::Module {
 public:
  // `stage` tells in and stride of this block. `drop`: the probability to leave out what it adds, in training.
  MbConv(const EfficientStage& stage, double drop)
      : residual_(stage.stride == 1 && stage.in == stage.out), drop_(drop) {
    const std::int64_t wide = stage.in * stage.expansion;
    if (stage.expansion != 1)
      block_->push_back(conv_norm({.in = stage.in, .out = wide, .kernel = 1}, Activation::silu));
    block_->push_back(conv_norm(
        {.in = wide, .out = wide, .kernel = stage.kernel, .stride = stage.stride, .groups = wide}, Activation::silu));
    block_->push_back(SqueezeExcitation(wide, stage.in / 4));
    block_->push_back(conv_norm({.in = wide, .out = stage.out, .kernel = 1}, Activation::none));
    register_module("block", block_);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = block_->forward(x);
    if (!residual_) return y;
    if (is_training() && drop_ > 0) y = drop_rows(y, drop_);
    return y += x;
  }

 private:
  bool residual_;
  double drop_;
  Row block_;
};

Row efficient_features(std::int64_t channels) {
  Row row;
  row->push_back(
      conv_norm({.in = channels, .out = kEfficientStages[0].in, .kernel = 3, .stride = 2}, Activation::silu));
  int number = 0;
  for (EfficientStage block : kEfficientStages) {
    Row stage;
    for (int i = 0; i < block.blocks; ++i) {
      stage->push_back(MbConv(block, kStochasticDepth * number++ / kEfficientBlocks));
      block.in = block.out;
      block.stride = 1;
    }
    row->push_back(stage);
  }
  row->push_back(conv_norm({.in = 320, .out = kEfficientLast, .kernel = 1}, Activation::silu));
  return row;
}

}  // namespace

std::shared_ptr<ImageModel> make_efficientnet_b0(const ImageTask& task) {
  const Row features = efficient_features(task.channels);
  const Head head(nn::Dropout(0.2), nn::Linear(kEfficientLast, task.classes));
  const auto model = std::make_shared<FeatureNet>(features, 1, head.ptr());
  draw_convolutions(*model, torch::kFanOut);
  for_each_layer<nn::Linear>(*model, [](nn::LinearImpl& layer) {
    const double range = 1 / std::sqrt(double(layer.options.out_features()));
    nn::init::uniform_(layer.weight, -range, range);
    nn::init::zeros_(layer.bias);
  });
  return model;
}

}  // namespace lockstep::models
