// Lets the Python tests look at training with torch::optim on two ranks: lockstep run -n 2 hooks_probe REQUEST
//
// The file: a list of {"what": a hook's name, "join" or "zero", "options": {...}, "steps", "weights": {name: numbers},
// "inputs": for each rank, for each of its steps, [samples, 12] numbers}. Rank 0 answers with a line per case: the
// weights behind the last step.

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lockstep/lockstep.h"

namespace {

using nlohmann::json;
using namespace lockstep;

constexpr double kRate = 0.05;

struct Net : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(12, 20));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(20, 20));
  torch::nn::Linear third = register_module("third", torch::nn::Linear(20, 8));
  at::Tensor forward(const at::Tensor& x) { return third(torch::tanh(second(torch::tanh(first(x))))); }
};

at::Tensor tensor(const json& numbers) { return torch::tensor(numbers.get<std::vector<float>>()); }

PowerSGDOptions power_sgd(const json& j) {
  PowerSGDOptions options{.start_powerSGD_iter = 10};
  options.matrix_approximation_rank = j.value("matrix_approximation_rank", options.matrix_approximation_rank);
  options.min_compression_rate = j.value("min_compression_rate", options.min_compression_rate);
  options.use_error_feedback = j.value("use_error_feedback", options.use_error_feedback);
  options.warm_start = j.value("warm_start", options.warm_start);
  options.orthogonalization_epsilon = j.value("orthogonalization_epsilon", options.orthogonalization_epsilon);
  options.random_seed = j.value("random_seed", options.random_seed);
  options.batch_tensors_with_same_shape = j.value("batch_tensors_with_same_shape", false);
  return options;
}

void register_hook(parallel::Engine& ddp, const std::shared_ptr<comm::Group>& group, const json& request) {
  const std::string what = request.at("what");
  const json& options = request.at("options");
  const auto power = [&] { return std::make_shared<PowerSGDState>(group, power_sgd(options)); };
  if (what == "allreduce") ddp.register_comm_hook(group, allreduce_hook);
  if (what == "fp16_compress") ddp.register_comm_hook(group, fp16_compress_hook);
  if (what == "bf16_compress") ddp.register_comm_hook(group, bf16_compress_hook);
  if (what == "quantization_pertensor") ddp.register_comm_hook(group, quantization_pertensor_hook);
  if (what == "quantization_perchannel") ddp.register_comm_hook(group, quantization_perchannel_hook);
  if (what == "powerSGD") ddp.register_comm_hook(power(), powerSGD_hook);
  if (what == "batched_powerSGD") ddp.register_comm_hook(power(), batched_powerSGD_hook);
  if (what == "fp16_powerSGD") ddp.register_comm_hook(power(), fp16_compress_wrapper(powerSGD_hook));
  if (what == "bf16_powerSGD") ddp.register_comm_hook(power(), bf16_compress_wrapper(powerSGD_hook));
  if (what == "post_localSGD") {
    const PostLocalSGDOptions local{.start_localSGD_iter = 10, .post_local_gradient_allreduce = false};
    ddp.register_comm_hook(std::make_shared<PostLocalSGDState>(group, nullptr, local), post_localSGD_hook);
  }
}

json run(const json& request, const std::shared_ptr<comm::Group>& group) {
  const auto model = std::make_shared<Net>();
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : model->named_parameters())
      item.value().copy_(tensor(request.at("weights").at(item.key())).view(item.value().sizes()));
  }
  DistributedDataParallel ddp(model, group);
  register_hook(ddp, group, request);
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (request.at("what") == "zero")
    optimizer = std::make_unique<ZeroRedundancyOptimizer<torch::optim::Adam>>(model->parameters(), group,
                                                                              torch::optim::AdamOptions(kRate / 10));
  else
    optimizer = std::make_unique<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(kRate).momentum(0.9));
  PeriodicModelAverager averager(group, PeriodicModelAveragerOptions{4, 10});
  PostLocalSGDOptimizer local(*optimizer, averager);
  const auto loop = [&] {
    for (const json& input : request.at("inputs")[std::size_t(group->rank())]) {
      optimizer->zero_grad();
      ddp(tensor(input).view({-1, 12})).square().mean().backward();
      if (request.at("what") == "post_localSGD")
        local.step();
      else
        optimizer->step();
    }
  };
  if (request.at("what") == "join")
    ddp.join(loop, {.divide_by_initial_world_size = request.at("options").at("divide_by_initial_world_size")});
  else
    loop();
  json weights;
  for (const auto& [name, weight] : ddp.state_dict()) {
    const at::Tensor flat = weight.detach().contiguous();
    weights[name] = std::vector<float>(flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  }
  return weights;
}

}  // namespace

int main(int, char** arguments) {
  auto world = init({.idle_cores_hint = false});
  std::ifstream file(arguments[1]);
  for (const json& request : json::parse(file)) {
    const json weights = run(request, world.group());
    if (world.rank() == 0) std::cout << weights << std::endl;
  }
}
