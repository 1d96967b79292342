#include "lockstep/models/vgg.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <algorithm>

#include "lockstep/models/feature_net.h"
#include "lockstep/models/head.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kVggSide = 7;
constexpr std::int64_t kVggHidden = 4096;
constexpr std::int64_t kVggWidest = 512;

Row vgg_features(const VggKind& kind, std::int64_t channels) {
  Row row;
  std::int64_t in = channels, out = 64;
  for (const int count : kind.convolutions) {
    for (int i = 0; i < count; ++i) {
      row->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
      if (kind.batch_norm) row->push_back(nn::BatchNorm2d(out));
      row->push_back(relu());
      in = out;
    }
    row->push_back(nn::MaxPool2d(2));
    out = std::min(2 * out, kVggWidest);
  }
  return row;
}

// One statement for each layer with weights: they are drawn in this order.
Head vgg_head(std::int64_t classes) {
  Head head;
  for (const std::int64_t in : {kVggWidest * kVggSide * kVggSide, kVggHidden}) {
    head->push_back(nn::Linear(in, kVggHidden));
    head->push_back(relu());
    head->push_back(nn::Dropout(0.5));
  }
  head->push_back(nn::Linear(kVggHidden, classes));
  return head;
}

}  // namespace

std::shared_ptr<ImageModel> make_vgg(const VggKind& kind, const ImageTask& task) {
  const Row features = vgg_features(kind, task.channels);
  const auto model = std::make_shared<FeatureNet>(features, kVggSide, vgg_head(task.classes).ptr());
  draw_convolutions(*model, torch::kFanOut);
  for_each_layer<nn::Linear>(*model, [](nn::LinearImpl& layer) {
    nn::init::normal_(layer.weight, 0, 0.01);
    nn::init::zeros_(layer.bias);
  });
  return model;
}

}  // namespace lockstep::models
