// Trains a net of your own on data of your own, on as many processes as the launcher starts:
//   lockstep run -n 2 build/bin/example_01_train
#include <torch/torch.h>

#include <iostream>

#include "lockstep/lockstep.h"

struct Net : torch::nn::Module {
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(2, 32));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 2));
  at::Tensor forward(const at::Tensor& x) { return out(torch::tanh(hidden(x))); }
};

struct Batch {
  at::Tensor data, target;
};

Batch ring(std::int64_t samples, std::uint64_t seed) {  // is a point inside the circle of radius 0.7?
  torch::manual_seed(seed);
  at::Tensor points = torch::rand({samples, 2}) * 2 - 1;
  return {points, (points.norm(2, 1) < 0.7).to(torch::kLong)};
}

int main() {
  auto world = lockstep::init();
  torch::manual_seed(0);
  auto model = std::make_shared<Net>();
  lockstep::DistributedDataParallel ddp(model, world.group());
  lockstep::optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
  for (auto step = ddp.next_step(); step <= 1000; ++step) {  // 1, or where a killed process left off
    Batch batch = ring(64, step * world.size() + world.rank());
    at::Tensor loss = torch::nn::functional::cross_entropy(ddp(batch.data), batch.target);
    loss.backward();
    optimizer.step();
    if (step % 250 == 0 && world.rank() == 0) std::cout << "step " << step << "  loss " << loss.item() << std::endl;
  }
}
