// Trains a net of your own on data of your own, on as many processes as the launcher starts:
//   lockstep run -n 2 build/bin/example_01_train
#include <torch/torch.h>

#include <iostream>

#include "lockstep/data/data_loader.h"
#include "lockstep/data/tensor_batches.h"
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
  auto model = std::make_shared<Net>();
  lockstep::DistributedDataParallel ddp(model, world.group());
  lockstep::data::DataLoader loader(lockstep::data::tensors(points, inside), ddp.part(),
                                    {.batch_size = 64, .shuffle = true});
  ddp.state().keep("loader", loader.kept());  // each step commits where it stands, a restart finds it again
  lockstep::optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
  for (auto epoch = loader.epoch(); epoch < 10; ++epoch) {  // from 0, or from where a killed process left off
    loader.set_epoch(epoch);
    for (auto& batch : loader) {
      at::Tensor loss = torch::nn::functional::cross_entropy(ddp(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      if (ddp.steps() % 250 == 0 && world.rank() == 0)
        std::cout << "step " << ddp.steps() << "  loss " << loss.item() << std::endl;
    }
  }
}
