// A step of 256 samples in parts of 16, for which alone there is memory: each part's loss is a sum, and the step
// divides by all samples of all processes. The weights are those of the big batch, with any optimizer of
// lockstep::optim.
//   lockstep run -n 2 build/bin/example_04_gradient_accumulation
#include <iostream>

#include "lockstep/lockstep.h"

at::Tensor summed_loss(const at::Tensor& logits, const at::Tensor& target) {
  return torch::nn::functional::cross_entropy(logits, target,
                                              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
}

int main() {
  auto world = lockstep::init();
  torch::manual_seed(0);
  at::Tensor points = torch::rand({2048, 2}) * 2 - 1;
  at::Tensor inside = (points.norm(2, 1) < 0.7).to(torch::kLong);  // of the circle of radius 0.7?
  auto train = [&](std::int64_t part) {
    torch::manual_seed(1);
    torch::nn::Sequential model(torch::nn::Linear(2, 32), torch::nn::Tanh(), torch::nn::Linear(32, 2));
    lockstep::DistributedDataParallel ddp(model, world.group(), {.name = "parts of " + std::to_string(part)});
    lockstep::data::DataLoader loader(lockstep::data::tensors(points, inside), ddp.part(),
                                      {.batch_size = 256 / world.size(), .shuffle = true});
    ddp.state().keep("loader", loader.kept());  // each step commits where it stands, a restart finds it again
    lockstep::optim::AdamW optimizer(ddp, {.lr = 1e-2});
    for (auto epoch = loader.epoch(); epoch < 15; ++epoch) {  // from 0, or from where a killed process left off
      loader.set_epoch(epoch);
      for (auto& batch : loader) {
        std::int64_t samples = batch.target.size(0);
        for (std::int64_t first = 0; first < samples; first += part) {  // gradients add up
          std::int64_t count = std::min(part, samples - first);
          summed_loss(ddp(batch.data.narrow(0, first, count)), batch.target.narrow(0, first, count)).backward();
        }
        optimizer.step({.denominator = double(samples)});
      }
    }
    at::Tensor right = (ddp(points).argmax(1) == inside).to(torch::kFloat).mean();
    if (world.rank() == 0) std::cout << "parts of " << part << "  accuracy " << right.item<float>() << std::endl;
    return torch::nn::utils::parameters_to_vector(model->parameters()).clone();
  };
  at::Tensor in_parts = train(16), whole = train(256);
  at::Tensor difference = (in_parts - whole).abs().max();
  if (world.rank() == 0) std::cout << "largest difference " << difference.item<float>() << std::endl;
}
