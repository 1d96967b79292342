// Steps of ResNet-50 on a GPU, on one batch that is there, for benchmarks/gpu/gpu.py: each line of standard input is a
// number of steps to take, each line of output the milliseconds that one of them took.
//   lockstep-bench-gpu-step CONTENDER BATCH AMP FORMAT [EXACT]
// CONTENDER: loop (libtorch alone), torch (DistributedDataParallel, torch::optim::SGD), lockstep (ours). AMP: none or
// bf16. FORMAT: contiguous or channels_last. EXACT: deterministic algorithms, as `lockstep train` takes them.

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/device/choice.h"
#include "lockstep/device/deterministic.h"
#include "lockstep/lockstep.h"
#include "lockstep/models/registry.h"

namespace {

using namespace lockstep;
using Model = std::shared_ptr<models::ImageModel>;

constexpr double kRate = 0.01, kMomentum = 0.9;

std::function<void()> step_of(const std::string& contender, const Model& model, const at::Tensor& data,
                              const at::Tensor& target, parallel::DataParallelOptions options) {
  const auto loss_of = [target](const at::Tensor& output) {
    return torch::nn::functional::cross_entropy(output, target);
  };
  const auto torchs = [&] {
    return std::make_shared<torch::optim::SGD>(model->parameters(),
                                               torch::optim::SGDOptions(kRate).momentum(kMomentum));
  };
  if (contender == "loop") {
    const auto optimizer = torchs();
    return [=] {
      const parallel::ForwardScope scope(options, data.device());
      optimizer->zero_grad();
      loss_of(scope.output(model->forward(data))).backward();
      optimizer->step();
    };
  }
  auto ddp = std::make_shared<DistributedDataParallel<Model>>(model, std::make_shared<comm::SingleGroup>(), options);
  if (contender == "torch") {
    const auto optimizer = torchs();
    return [=] {
      optimizer->zero_grad();
      loss_of((*ddp)(data)).backward();
      optimizer->step();
    };
  }
  if (contender != "lockstep") throw UsageError("contender '" + contender + "': loop, torch or lockstep expected");
  auto optimizer = std::make_shared<optim::SGD>(*ddp, optim::SGDOptions{.lr = kRate, .momentum = kMomentum});
  return [=] {
    loss_of((*ddp)(data)).backward();
    optimizer->step();
  };
}

int run(int count, char** arguments) {
  if (count < 5) throw UsageError("CONTENDER BATCH AMP FORMAT [EXACT] expected");
  const at::Device device = device::choose("cuda", 0);
  if (count > 5)
    device::compute_deterministically();
  else
    at::globalContext().setBenchmarkCuDNN(true);
  const bool channels_last = arguments[4] == std::string("channels_last");
  torch::manual_seed(1);
  const Model model = models::make_model("resnet50", {.channels = 3, .height = 224, .width = 224, .classes = 1000});
  model->to(device);
  at::Tensor data = torch::randn({std::stoll(arguments[2]), 3, 224, 224}, device);
  if (channels_last) data = data.contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor target = torch::randint(1000, {data.size(0)}, torch::TensorOptions(device).dtype(torch::kLong));
  const auto step =
      step_of(arguments[1], model, data, target,
              {.amp = arguments[3] == std::string("bf16") ? Amp::bf16 : Amp::none, .channels_last = channels_last});
  for (int steps; std::cin >> steps;) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) step();
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    std::cout << time.count() / steps << std::endl;
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const std::exception& error) {
    std::cerr << "lockstep-bench-gpu-step: " << error.what() << '\n';
    return 2;
  }
}
