#include "lockstep/models/alexnet.h"

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "lockstep/models/feature_net.h"
#include "lockstep/models/head.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kAlexSide = 6;
constexpr std::int64_t kAlexHidden = 4096;

nn::MaxPool2d alex_pool() { return nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2)); }

nn::Conv2d alex_convolution(std::int64_t in, std::int64_t out, std::int64_t kernel) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).padding(kernel / 2));
}

Row alex_features(std::int64_t channels) {
  Row row(nn::Conv2d(nn::Conv2dOptions(channels, 64, 11).stride(4).padding(2)), relu(), alex_pool());
  row->push_back(alex_convolution(64, 192, 5));
  row->push_back(relu());
  row->push_back(alex_pool());
  for (const auto& [in, out] : {std::pair(192, 384), std::pair(384, 256), std::pair(256, 256)}) {
    row->push_back(alex_convolution(in, out, 3));
    row->push_back(relu());
  }
  row->push_back(alex_pool());
  return row;
}

// One statement for each layer with weights: they are drawn in this order.
Head alex_head(std::int64_t classes) {
  Head head(nn::Dropout(0.5));
  head->push_back(nn::Linear(256 * kAlexSide * kAlexSide, kAlexHidden));
  head->push_back(relu());
  head->push_back(nn::Dropout(0.5));
  head->push_back(nn::Linear(kAlexHidden, kAlexHidden));
  head->push_back(relu());
  head->push_back(nn::Linear(kAlexHidden, classes));
  return head;
}

}  // namespace

std::shared_ptr<ImageModel> make_alexnet(const ImageTask& task) {
  const Row features = alex_features(task.channels);
  return std::make_shared<FeatureNet>(features, kAlexSide, alex_head(task.classes).ptr());
}

}  // namespace lockstep::models
