// A training script in Horovod's words.
//   lockstep run -n 2 build/bin/example_09_horovod
#include <torch/torch.h>

#include <iostream>

#include "lockstep/horovod.h"

namespace hvd = lockstep::horovod;

int main() {
  hvd::init();
  torch::manual_seed(0);
  at::Tensor points = torch::rand({1600, 2}) * 2 - 1;
  at::Tensor inside = (points.norm(2, 1) < 0.7).to(torch::kLong);  // of the circle of radius 0.7?
  torch::manual_seed(hvd::rank());                                 // each rank starts elsewhere ...
  torch::nn::Sequential model(torch::nn::Linear(2, 32), torch::nn::ReLU(), torch::nn::Linear(32, 2));
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.05 * hvd::size()).momentum(0.9));
  hvd::DistributedOptimizer optimizer(
      sgd, {.named_parameters = model->named_parameters(), .compression = hvd::Compression::fp16});
  hvd::broadcast_parameters(*model);  // ... and all from rank 0's weights
  hvd::broadcast_optimizer_state(sgd);

  for (int epoch = 0; epoch < 10; ++epoch) {  // from 0: with torch::optim the weights end with their process
    at::Tensor total = torch::zeros({});
    const int64_t steps = points.size(0) / (16 * hvd::size());  // as many on all ranks
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t first = 16 * (step * hvd::size() + hvd::rank());
      optimizer.zero_grad();
      at::Tensor loss = torch::nn::functional::cross_entropy(model->forward(points.narrow(0, first, 16)),
                                                             inside.narrow(0, first, 16));
      loss.backward();
      optimizer.step();
      total += loss.detach();
    }
    at::Tensor mean = hvd::allreduce(total / steps);
    if (hvd::rank() == 0) std::cout << "epoch " << epoch + 1 << "  loss " << mean.item<float>() << std::endl;
  }
  at::Tensor right = (model->forward(points).argmax(1) == inside).to(torch::kFloat).mean();
  if (hvd::rank() == 0) std::cout << "accuracy " << right.item<float>() << std::endl;
  hvd::shutdown();
}
