// Lets the Python tests look at GradScaler with an optimizer of ours: scaler_probe [DEVICE] < request.json
//
// Request: a list of {"scaler": {options...}, "optimizer": "SGD" or "Adam", "lr", "max_norm", "weights", "gradients"}:
// a step for each list of gradients, null for an infinite one. Answer: a line per case, {"scales", "weights"}: the
// scale behind each step, and the weights behind the last. With "others", the gradients of a second model of the same
// weights, which steps behind the first, and "others_weights" in the answer; with "torch" both are stepped by SGD of
// torch::optim.

#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/device/choice.h"
#include "lockstep/device/deterministic.h"
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

at::Device where = at::kCPU;

at::Tensor tensor(const json& numbers) {
  std::vector<float> values;
  for (const json& x : numbers) values.push_back(x.is_null() ? std::numeric_limits<float>::infinity() : x.get<float>());
  return torch::tensor(values).to(where);
}

GradScalerOptions options_of(const json& j) {
  GradScalerOptions options;
  options.init_scale = j.value("init_scale", options.init_scale);
  options.growth_factor = j.value("growth_factor", options.growth_factor);
  options.backoff_factor = j.value("backoff_factor", options.backoff_factor);
  options.growth_interval = j.value("growth_interval", options.growth_interval);
  return options;
}

json numbers_of(const at::Tensor& tensor) {
  const at::Tensor here = tensor.cpu();
  return std::vector<float>(here.data_ptr<float>(), here.data_ptr<float>() + here.numel());
}

// A model, by an optimizer of ours or of torch::optim.
struct Trained {
  Trained(const json& request, const std::string& name)
      : model(std::make_shared<Linear>(tensor(request.at("weights")))),
        ddp(model, std::make_shared<comm::SingleGroup>(), {.name = name}) {
    if (request.at("torch").get<bool>())
      torchs.emplace(model->parameters(), torch::optim::SGDOptions(request.at("lr").get<double>()).momentum(0.9));
    else
      ours.emplace(ddp, optim::SGDOptions{.lr = request.at("lr").get<double>(), .momentum = 0.9});
  }
  void backward(GradScaler& scaler, const json& gradient) {
    if (torchs) torchs->zero_grad();
    scaler.scale(ddp(tensor(gradient))).backward();
  }
  void step(GradScaler& scaler) {
    if (torchs)
      scaler.step(*torchs);
    else
      scaler.step(*ours);
  }

  std::shared_ptr<Linear> model;
  DistributedDataParallel<std::shared_ptr<Linear>> ddp;
  std::optional<torch::optim::SGD> torchs;
  std::optional<optim::SGD> ours;
};

json run_two(const json& request) {
  Trained first(request, "first"), second(request, "second");
  GradScaler scaler(options_of(request.at("scaler")));
  json scales = json::array();
  for (std::size_t i = 0; i < request.at("gradients").size(); ++i) {
    first.backward(scaler, request.at("gradients")[i]);
    second.backward(scaler, request.at("others")[i]);
    first.step(scaler);
    second.step(scaler);
    scaler.update();
    scales.push_back(scaler.get_scale());
  }
  return {{"scales", scales},
          {"weights", numbers_of(first.model->weights.detach())},
          {"others_weights", numbers_of(second.model->weights.detach())}};
}

json run(const json& request) {
  if (request.contains("others")) return run_two(request);
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
  return {{"scales", scales}, {"weights", numbers_of(model->weights.detach())}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) where = lockstep::device::choose(argv[1], 0);
  if (!where.is_cpu()) lockstep::device::compute_deterministically();
  for (const json& request : json::parse(std::cin)) std::cout << run(request) << std::endl;
}
