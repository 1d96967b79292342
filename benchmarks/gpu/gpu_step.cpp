// Steps of ResNet-50 on a GPU, on one batch that is there, for benchmarks/gpu/gpu.py: each line of standard input is a
// number of steps to take, each line of output the milliseconds that one of them took.

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "benchmarks/support/program.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/device/choice.h"
#include "lockstep/device/deterministic.h"
#include "lockstep/flags/values.h"
#include "lockstep/lockstep.h"
#include "lockstep/models/registry.h"

namespace {

using namespace lockstep;
using Model = std::shared_ptr<models::ImageModel>;

constexpr double kRate = 0.01, kMomentum = 0.9;

struct Settings {
  std::string contender = "lockstep";
  std::int64_t batch = 64;
  Amp amp = Amp::none;
  bool channels_last = false;
  bool exact = false;
};

flags::Table table_of(Settings& settings) {
  return {
      .usage = "lockstep-bench-gpu-step [options]",
      .about = "Steps of ResNet-50 on a GPU: reads how many, writes the milliseconds of one.\n",
      .groups = {{"",
                  {{"--contender", flags::one_of(settings.contender, {"loop", "torch", "fused", "lockstep"}),
                    "libtorch alone, DistributedDataParallel with torch::optim::SGD, FusedSGD, or ours"},
                   {"--batch", flags::integer(settings.batch, 1, 1 << 20)},
                   {"--amp", flags::choice<Amp>(settings.amp, {{"none", Amp::none}, {"bf16", Amp::bf16}})},
                   {"--channels-last", flags::on(settings.channels_last)},
                   {"--exact", flags::on(settings.exact), "deterministic algorithms, as lockstep train has them"}}}}};
}

std::function<void()> step_of(const std::string& contender, const Model& model, const at::Tensor& data,
                              const at::Tensor& target, parallel::DataParallelOptions options) {
  const auto loss_of = [target](const at::Tensor& output) {
    return torch::nn::functional::cross_entropy(output, target);
  };
  const auto torchs = [&]() -> std::shared_ptr<torch::optim::SGD> {
    const auto given = torch::optim::SGDOptions(kRate).momentum(kMomentum);
    if (contender == "fused") return std::make_shared<FusedSGD>(model->parameters(), given);
    return std::make_shared<torch::optim::SGD>(model->parameters(), given);
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
  if (contender == "torch" || contender == "fused") {
    const auto optimizer = torchs();
    return [=] {
      optimizer->zero_grad();
      loss_of((*ddp)(data)).backward();
      optimizer->step();
    };
  }
  auto optimizer = std::make_shared<optim::SGD>(*ddp, optim::SGDOptions{.lr = kRate, .momentum = kMomentum});
  return [=] {
    loss_of((*ddp)(data)).backward();
    optimizer->step();
  };
}

void run(const Settings& settings) {
  const at::Device device = device::choose("cuda", 0);
  if (settings.exact)
    device::compute_deterministically();
  else
    at::globalContext().setBenchmarkCuDNN(true);
  torch::manual_seed(1);
  const Model model = models::make_model("resnet50", {.channels = 3, .height = 224, .width = 224, .classes = 1000});
  model->to(device);
  at::Tensor data = torch::randn({settings.batch, 3, 224, 224}, device);
  if (settings.channels_last) data = data.contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor target = torch::randint(1000, {data.size(0)}, torch::TensorOptions(device).dtype(torch::kLong));
  const auto step =
      step_of(settings.contender, model, data, target, {.amp = settings.amp, .channels_last = settings.channels_last});
  for (int steps; std::cin >> steps;) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) step();
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    std::cout << time.count() / steps << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  return bench::run_program(table_of(settings), argc, argv, [&](const flags::Parsed&) { run(settings); });
}
