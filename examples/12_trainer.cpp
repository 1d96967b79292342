// A loop of your own without the loop: epochs, evaluation, early stopping, checkpoints, and an end in good order when a
// scheduler asks for it. Started again, it goes on where it was, on any number of processes:
//   lockstep run -n 2 build/bin/example_12_trainer checkpoints
#include <iostream>

#include "lockstep/lockstep.h"
#include "lockstep/train.h"

namespace train = lockstep::train;

struct Net : torch::nn::Module {
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(2, 32));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 2));
  at::Tensor forward(const at::Tensor& x) { return out(torch::tanh(hidden(x))); }
};

int main(int argc, char** argv) {
  auto world = lockstep::init();
  if (argc != 2) throw lockstep::UsageError("usage: trainer CHECKPOINTS");
  torch::manual_seed(0);
  at::Tensor points = torch::rand({12800, 2}) * 2 - 1;
  at::Tensor inside = (points.norm(2, 1) < 0.7).to(torch::kLong);  // of the circle of radius 0.7?
  auto test = lockstep::data::tensors(points.narrow(0, 0, 2000), inside.narrow(0, 0, 2000));
  lockstep::DistributedDataParallel ddp(std::make_shared<Net>(), world.group(), {.shards = 4});
  lockstep::data::DataLoader loader(lockstep::data::tensors(points, inside), ddp.part(),
                                    {.global_batch_size = 128, .shuffle = true});
  const auto evaluate = [&]() -> train::Found {
    const auto found = lockstep::evaluate(ddp, test, [&](const auto& batch) -> lockstep::Sums {
      return {{"correct", ddp(batch.data).argmax(1).eq(batch.target).sum().template item<double>()}};
    });
    return {{"accuracy", found.mean("correct")}};
  };
  train::TrainerOptions options;
  options.epochs = 50;
  options.evaluate = evaluate;
  options.checkpoints = argv[1];
  options.save_every = 50;
  options.monitor = "accuracy";
  train::Trainer trainer(ddp, loader, options);
  trainer.add(train::console(ddp));
  trainer.add(train::early_stopping({.monitor = "accuracy", .patience = 3, .smaller_is_better = false}));
  lockstep::optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
  const auto end = trainer.run(optimizer, [&](const train::Shard& shard) {
    return torch::nn::functional::cross_entropy(ddp(shard.data), shard.target);
  });
  if (world.rank() == 0) std::cout << "step " << end.steps << "  weights " << ddp.weights_hash() << std::endl;
  return end;  // 75 when a signal has stopped it
}
