// Gradients on the way between processes: with a hook of one's own, which counts what is sent, around PowerSGD, which
// sends a seventh of it.
//   lockstep run -n 2 build/bin/example_05_comm_hook
#include <iostream>

#include "lockstep/lockstep.h"

using lockstep::GradBucket;

int main() {
  auto world = lockstep::init();
  torch::manual_seed(0);
  at::Tensor points = torch::rand({1600, 2}) * 2 - 1;
  at::Tensor inside = (points.norm(2, 1) < 0.7).to(torch::kLong);  // of the circle of radius 0.7?
  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64), torch::nn::ReLU(),
                              torch::nn::Linear(64, 2));
  lockstep::DistributedDataParallel ddp(model, world.group());

  auto state = std::make_shared<lockstep::PowerSGDState>(
      world.group(), lockstep::PowerSGDOptions{.matrix_approximation_rank = 2, .start_powerSGD_iter = 20});
  std::int64_t gradients = 0;
  ddp.register_comm_hook(state, [&](lockstep::PowerSGDState& power, GradBucket& bucket) {
    gradients += bucket.buffer().numel();
    return lockstep::powerSGD_hook(power, bucket);
  });

  lockstep::data::DataLoader loader(lockstep::data::tensors(points, inside), ddp.part(),
                                    {.batch_size = 20, .shuffle = true});
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int epoch = 0; epoch < 5; ++epoch) {  // from 0: with torch::optim the weights end with their process
    loader.set_epoch(epoch);
    double loss = 0;
    for (auto& batch : loader) {
      optimizer.zero_grad();
      at::Tensor error = torch::nn::functional::cross_entropy(ddp(batch.data), batch.target);
      error.backward();
      optimizer.step();
      loss = error.item<double>();
    }
    if (world.rank() == 0) std::cout << "epoch " << epoch + 1 << "  loss " << loss << std::endl;
  }
  const auto stats = state->compression_stats();
  at::Tensor right = (ddp(points).argmax(1) == inside).to(torch::kFloat).mean();
  if (world.rank() == 0) {
    std::cout << "gradients " << gradients << ", compressed " << stats.rate << " times" << std::endl;
    std::cout << "accuracy " << right.item<float>() << std::endl;
    std::cout << "weights " << ddp.weights_hash() << std::endl;
  }
}
