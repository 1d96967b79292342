// Two models in one program: a generator learns to make points of a circle, a discriminator to tell them from real
// ones. Each has an optimizer of its own; a step of both is one transaction, so a killed process leaves them at the
// same step.
//   lockstep run -n 2 build/bin/example_10_gan
#include <iostream>
#include <numbers>

#include "lockstep/lockstep.h"

torch::nn::Sequential mlp(int in, int out) {
  return torch::nn::Sequential(torch::nn::Linear(in, 64), torch::nn::LeakyReLU(), torch::nn::Linear(64, 64),
                               torch::nn::LeakyReLU(), torch::nn::Linear(64, out));
}

at::Tensor loss(const at::Tensor& logits, double real) {
  return torch::nn::functional::binary_cross_entropy_with_logits(logits, torch::full_like(logits, real));
}

int main() {
  auto world = lockstep::init();
  torch::manual_seed(0);
  lockstep::DistributedDataParallel d(mlp(2, 1), world.group(), {.name = "discriminator"});
  lockstep::DistributedDataParallel g(mlp(2, 2), world.group(), {.name = "generator"});
  lockstep::optim::Adam d_optimizer(d, {.lr = 2e-3, .betas = {{0.5, 0.999}}});
  lockstep::optim::Adam g_optimizer(g, {.lr = 1e-3, .betas = {{0.5, 0.999}}});
  lockstep::commit_together(d, g);
  at::Tensor fake;
  for (auto step = g.next_step(); step <= 1000; ++step) {  // from 1, or from where a killed process left off
    torch::manual_seed(step * world.size() + world.rank());
    at::Tensor angle = torch::rand({64}) * 2 * std::numbers::pi;
    at::Tensor real = torch::stack({angle.cos(), angle.sin()}, 1);
    fake = g(torch::randn({64, 2}));
    (loss(d(real), 1) + loss(d(fake.detach()), 0)).backward();
    d_optimizer.step();
    loss(d(fake), 1).backward();
    g_optimizer.step();
    d_optimizer.zero_grad();  // the generator's loss went through the discriminator, too
    if (step % 100 == 0 && world.rank() == 0)
      std::cout << "step " << step << "  radius " << fake.norm(2, 1).mean().item<float>() << std::endl;
  }
  if (world.rank() == 0) std::cout << "weights " << d.weights_hash() << g.weights_hash() << std::endl;
}
