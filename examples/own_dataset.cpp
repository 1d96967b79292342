// A data set of your own: any class that says how many samples it has, and makes sample i. Threads of the loader make
// them while the net trains:
//   lockstep run -n 2 --max-restarts 3 build/bin/example_own_dataset
#include <cmath>
#include <iostream>

#include "lockstep/lockstep.h"

namespace data = lockstep::data;

// Noisy sine waves of two frequencies, which are to be told apart. What is drawn for sample i depends on i alone.
struct Waves {
  std::int64_t first, count;
  std::int64_t size() const { return count; }
  data::Batch get(std::int64_t i) const {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(std::uint64_t(first + i));
    const std::int64_t label = i % 2;
    const at::Tensor phase = torch::rand({1}, generator) * 2 * M_PI;
    const at::Tensor wave = torch::sin(torch::linspace(0, 2 * M_PI, 64) * (label == 0 ? 3 : 4) + phase);
    return {wave + torch::randn({64}, generator), torch::tensor(label)};
  }
};

struct Net : torch::nn::Module {
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(64, 32));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 2));
  at::Tensor forward(const at::Tensor& x) { return out(torch::dropout(torch::relu(hidden(x)), 0.1, is_training())); }
};

int main() {
  auto world = lockstep::init();
  torch::manual_seed(0);
  lockstep::DistributedDataParallel ddp(std::make_shared<Net>(), world.group(), {.shards = 4});
  data::DataLoader loader(Waves{0, 8192}, ddp.part(), {.global_batch_size = 64, .shuffle = true, .num_workers = 2});
  ddp.state().keep("loader", loader.kept());
  lockstep::optim::Adam optimizer(ddp, {.lr = 1e-3});
  for (auto epoch = loader.epoch(); epoch < 5; ++epoch) {
    loader.set_epoch(epoch);
    for (auto& batch : loader) {
      for (auto& shard : ddp.shards(batch))
        torch::nn::functional::cross_entropy(ddp(shard.data), shard.target).backward();
      optimizer.step();
    }
    const auto found = lockstep::evaluate(ddp, Waves{1'000'000, 2000}, [&](const data::Batch& batch) -> lockstep::Sums {
      return {{"correct", ddp(batch.data).argmax(1).eq(batch.target).sum().item<double>()}};
    });
    if (world.rank() == 0) std::cout << "epoch " << epoch + 1 << "  accuracy " << found.mean("correct") << std::endl;
  }
  if (world.rank() == 0) std::cout << "weights " << ddp.weights_hash() << std::endl;
}
