// Trains in one process with two replicas of a net, each in a thread of its own, and any optimizer of torch::optim.
//   build/bin/example_08_data_parallel
#include <iostream>

#include "lockstep/lockstep.h"

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    hidden = register_module("hidden", torch::nn::Linear(2, 32));
    out = register_module("out", torch::nn::Linear(32, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return out(torch::tanh(hidden(x))); }
  torch::nn::Linear hidden{nullptr}, out{nullptr};
};
TORCH_MODULE(Net);

int main() {
  at::set_num_threads(1);  // of each replica
  torch::manual_seed(0);
  at::Tensor points = torch::rand({3200, 2}) * 2 - 1;
  at::Tensor inside = (points.norm(2, 1) < 0.7).to(torch::kLong);  // of the circle of radius 0.7?
  Net net;
  lockstep::DataParallel model(net, {at::kCPU, at::kCPU});
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
  for (int epoch = 0; epoch < 10; ++epoch) {  // from 0: with torch::optim the weights end with their process
    at::Tensor order = torch::randperm(points.size(0)), loss;
    for (const at::Tensor& batch : order.split(100)) {
      optimizer.zero_grad();
      loss = torch::nn::functional::cross_entropy(model(points.index({batch})), inside.index({batch}));
      loss.backward();  // on the replicas' threads; the gradients are net's own
      optimizer.step();
    }
    std::cout << "epoch " << epoch + 1 << "  loss " << loss.item<float>() << std::endl;
  }
  torch::NoGradGuard no_grad;
  std::cout << "accuracy " << (model(points).argmax(1) == inside).to(torch::kFloat).mean().item<float>() << std::endl;
}
