// BatchNorm over the batches of all processes, of which each has only four samples: too few for statistics of its own.
//   lockstep run -n 2 build/bin/example_07_sync_batch_norm
#include <iostream>

#include "lockstep/lockstep.h"

struct Net : torch::nn::Module {
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(2, 32));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(32));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 2));
  at::Tensor forward(const at::Tensor& x) { return out(torch::relu(norm(hidden(x)))); }
};

int main() {
  auto world = lockstep::init();
  torch::manual_seed(0);
  at::Tensor points = torch::rand({1600, 2}) * 2 - 1;
  at::Tensor inside = (points.norm(2, 1) < 0.7).to(torch::kLong);  // of the circle of radius 0.7?
  auto model = lockstep::convert_sync_batchnorm(std::make_shared<Net>(), world.group());
  lockstep::DistributedDataParallel ddp(model, world.group());  // one shard per process
  lockstep::data::DataLoader loader(lockstep::data::tensors(points, inside), ddp.part(),
                                    {.batch_size = 4, .shuffle = true});
  ddp.state().keep("loader", loader.kept());  // each step commits where it stands, a restart finds it again
  lockstep::optim::SGD optimizer(ddp, {.lr = 0.05, .momentum = 0.9});
  for (auto epoch = loader.epoch(); epoch < 5; ++epoch) {  // from 0, or from where a killed process left off
    loader.set_epoch(epoch);
    for (auto& batch : loader) {
      at::Tensor loss = torch::nn::functional::cross_entropy(ddp(batch.data), batch.target);
      loss.backward();
      ddp.record(loss.item<double>(), batch.target.size(0));
      optimizer.step();
    }
    if (world.rank() == 0) std::cout << "epoch " << epoch + 1 << "  loss " << ddp.last_record().loss << std::endl;
  }
  model->eval();
  at::Tensor right = (ddp(points).argmax(1) == inside).to(torch::kFloat).mean();
  if (world.rank() == 0) {
    std::cout << "accuracy " << right.item<float>() << std::endl;
    std::cout << "weights " << ddp.weights_hash() << std::endl;
  }
}
