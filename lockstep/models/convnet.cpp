#include "lockstep/models/convnet.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

nn::Sequential make_layer(std::int64_t in, std::int64_t out) {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(in, out, 5).padding(2)), nn::BatchNorm2d(out), nn::ReLU(),
                        nn::MaxPool2d(2));
}

}  // namespace

// The order of construction is the order in which the generator is drawn from, as in Python.
ConvNet::ConvNet(const ImageTask& task)
    : ImageModel("ConvNet"), layer1_(make_layer(task.channels, 16)), layer2_(make_layer(16, 32)) {
  register_module("layer1", layer1_);
  register_module("layer2", layer2_);
  register_module("fc", nn::Linear((task.height / 2 / 2) * (task.width / 2 / 2) * 32, task.classes));
}

at::Tensor ConvNet::forward(at::Tensor images) {
  return through("fc", layer2_->forward(layer1_->forward(images)).flatten(1));
}

}  // namespace lockstep::models
