// Trains a net of your own on data of your own, on as many processes as the launcher starts. The weights do not depend
// on how many there are, nor on which of them are killed on the way:
//   lockstep run -n 2 --max-restarts 3 build/bin/example_own_loop
#include <iostream>

#include "lockstep/lockstep.h"

struct Net : torch::nn::Module {
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(2, 32));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 2));
  at::Tensor forward(const at::Tensor& x) { return out(torch::tanh(hidden(x))); }
};

int main() {
  auto world = lockstep::init();
  torch::manual_seed(0);
  at::Tensor points = torch::rand({12800, 2}) * 2 - 1;
  at::Tensor inside = (points.norm(2, 1) < 0.7).to(torch::kLong);  // of the circle of radius 0.7?
  lockstep::DistributedDataParallel ddp(std::make_shared<Net>(), world.group(), {.shards = 4});
  lockstep::data::DataLoader loader(lockstep::data::tensors(points, inside), ddp.part(),
                                    {.global_batch_size = 128, .shuffle = true});
  ddp.state().keep("loader", loader.kept());  // each step commits where it stands, a restart finds it again
  lockstep::optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
  for (auto epoch = loader.epoch(); epoch < 10; ++epoch) {  // from 0, or from where a killed process left off
    loader.set_epoch(epoch);
    for (auto& batch : loader) {
      for (auto& shard : ddp.shards(batch)) {
        at::Tensor loss = torch::nn::functional::cross_entropy(ddp(shard.data), shard.target);
        loss.backward();
        ddp.record(loss.item<double>(), shard.target.size(0));
      }
      optimizer.step();
    }
    if (world.rank() == 0) std::cout << "epoch " << epoch + 1 << "  loss " << ddp.last_record().loss << std::endl;
  }
  if (world.rank() == 0) std::cout << "weights " << ddp.weights_hash() << std::endl;
}
