// Lets the Python tests look at GradScaler with an optimizer of ours: scaler_probe < request.json
//
// Request: a list of {"scaler": {options...}, "optimizer": "SGD" or "Adam", "lr", "max_norm", "weights", "gradients"}:
// a step for each list of gradients, null for an infinite one. Answer: a line per case, {"scales", "weights"}: the
// scale behind each step, and the weights behind the last.

#include <torch/nn/module.h>

#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/lockstep.h"

namespace {

using nlohmann::json;
using namespace lockstep;

// Its loss is linear in the weights, so that their gradient is what it is given.
struct Linear : torch::nn::Module {
  explicit Linear(const at::Tensor& start) : weights(register_parameter("weights", start)) {}
  at::Tensor forward(const at::Tensor& gradient) { return (weights * gradient).sum(); }
  at::Tensor weights;
};

at::Tensor tensor(const json& numbers) {
  std::vector<float> values;
  for (const json& x : numbers) values.push_back(x.is_null() ? std::numeric_limits<float>::infinity() : x.get<float>());
  return torch::tensor(values);
}

GradScalerOptions options_of(const json& j) {
  GradScalerOptions options;
  options.init_scale = j.value("init_scale", options.init_scale);
  options.growth_factor = j.value("growth_factor", options.growth_factor);
  options.backoff_factor = j.value("backoff_factor", options.backoff_factor);
  options.growth_interval = j.value("growth_interval", options.growth_interval);
  return options;
}

json run(const json& request) {
  const auto model = std::make_shared<Linear>(tensor(request.at("weights")));
  DistributedDataParallel ddp(model, std::make_shared<comm::SingleGroup>());
  GradScaler scaler(options_of(request.at("scaler")));
  const double lr = request.at("lr");
  std::unique_ptr<optim::Optimizer> optimizer;
  if (request.at("optimizer") == "Adam")
    optimizer = std::make_unique<optim::Adam>(ddp, optim::AdamOptions{.lr = lr});
  else
    optimizer = std::make_unique<optim::SGD>(ddp, optim::SGDOptions{.lr = lr, .momentum = 0.9});
  json scales = json::array();
  for (const json& gradient : request.at("gradients")) {
    scaler.scale(ddp(tensor(gradient))).backward();
    scaler.step(*optimizer, {.max_norm = request.at("max_norm")});
    scaler.update();
    scales.push_back(scaler.get_scale());
  }
  const at::Tensor weights = model->weights.detach();
  return {{"scales", scales},
          {"weights", std::vector<float>(weights.data_ptr<float>(), weights.data_ptr<float>() + weights.numel())}};
}

}  // namespace

int main() {
  for (const json& request : json::parse(std::cin)) std::cout << run(request) << std::endl;
}
