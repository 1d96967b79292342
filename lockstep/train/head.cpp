#include "lockstep/train/head.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/base/error.h"
#include "lockstep/train/options_head.h"

namespace lockstep::train {

void replace_head(models::ImageModel& model, const std::string& text, std::int64_t classes) {
  const std::vector<HeadLayer> layers = head_layers(text);
  if (layers.back().outputs != classes)
    throw UsageError("--head " + text + " ends in " + std::to_string(layers.back().outputs) + ", the data set has " +
                     std::to_string(classes) + " classes");
  const std::string last = models::last_layer(model);
  std::int64_t inputs = model.named_modules()[last]->as<torch::nn::Linear>()->options.in_features();
  torch::nn::Sequential head;
  for (const HeadLayer& layer : layers) {
    switch (layer.kind) {
      case HeadLayer::Kind::linear:
        head->push_back(torch::nn::Linear(inputs, layer.outputs));
        inputs = layer.outputs;
        break;
      case HeadLayer::Kind::relu:
        head->push_back(torch::nn::ReLU());
        break;
      case HeadLayer::Kind::gelu:
        head->push_back(torch::nn::GELU());
        break;
      case HeadLayer::Kind::tanh:
        head->push_back(torch::nn::Tanh());
        break;
      case HeadLayer::Kind::dropout:
        head->push_back(torch::nn::Dropout(layer.p));
        break;
    }
  }
  const std::size_t dot = last.rfind('.');
  if (dot == std::string::npos) return void(model.replace_module(last, head));
  model.named_modules()[last.substr(0, dot)]->replace_module(last.substr(dot + 1), head);
}

}  // namespace lockstep::train
