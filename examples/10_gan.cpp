// Two models in one program: a generator learns to make points of a circle, a discriminator to tell them from real.
// Each has an optimizer, and checkpoints where there is a folder. A step of both is one transaction, whatever dies.
//   lockstep run -n 2 build/bin/example_10_gan [CHECKPOINTS]
#include <filesystem>
#include <iostream>
#include <numbers>

#include "lockstep/checkpoint.h"
#include "lockstep/lockstep.h"

torch::nn::Sequential mlp(int in, int out) {
  return torch::nn::Sequential(torch::nn::Linear(in, 64), torch::nn::LeakyReLU(), torch::nn::Linear(64, 64),
                               torch::nn::LeakyReLU(), torch::nn::Linear(64, out));
}

at::Tensor loss(const at::Tensor& logits, double real) {
  return torch::nn::functional::binary_cross_entropy_with_logits(logits, torch::full_like(logits, real));
}

// What is saved first is there of every step of which the other one is: resumed from the other's step, both are alike.
void resume(const std::filesystem::path& folder, auto& first, auto& second) {
  const auto from = lockstep::checkpoint::resume(folder / "generator", second);
  if (from.path.empty()) return;
  lockstep::checkpoint::resume("", first, folder / "discriminator" / std::filesystem::path(from.path).filename());
  if (second.group().rank() == 0) std::cout << "from step " << from.step << std::endl;
}

int main(int argc, char** argv) {
  auto world = lockstep::init();
  const std::filesystem::path folder = argc > 1 ? argv[1] : "";
  torch::manual_seed(0);
  lockstep::DistributedDataParallel d(mlp(2, 1), world.group(), {.name = "discriminator"});
  lockstep::DistributedDataParallel g(mlp(2, 2), world.group(), {.name = "generator"});
  if (!folder.empty()) resume(folder, d, g);
  lockstep::optim::Adam d_optimizer(d, {.lr = 2e-3, .betas = {{0.5, 0.999}}});
  lockstep::optim::Adam g_optimizer(g, {.lr = 1e-3, .betas = {{0.5, 0.999}}});
  lockstep::commit_together(d, g);
  if (!folder.empty()) {  // by the launcher, when no process is left that could
    lockstep::checkpoint::save_on_failure(folder / "discriminator", d);
    lockstep::checkpoint::save_on_failure(folder / "generator", g);
  }
  for (auto step = g.next_step(); step <= 1000; ++step) {  // from 1, or from where a killed process left off
    torch::manual_seed(step * world.size() + world.rank());
    at::Tensor angle = torch::rand({64}) * 2 * std::numbers::pi;
    at::Tensor real = torch::stack({angle.cos(), angle.sin()}, 1);
    at::Tensor fake = g(torch::randn({64, 2}));
    (loss(d(real), 1) + loss(d(fake.detach()), 0)).backward();
    d_optimizer.step();
    loss(d(fake), 1).backward();
    g_optimizer.step();
    d_optimizer.zero_grad();  // the generator's loss went through the discriminator, too
    if (step % 50 == 0 && !folder.empty()) {
      lockstep::checkpoint::save(folder / "discriminator", d, {.retention = {.keep = 2}});
      lockstep::checkpoint::save(folder / "generator", g, {.retention = {.keep = 2}});
    }
    if (step % 100 == 0 && world.rank() == 0)
      std::cout << "step " << step << "  radius " << fake.norm(2, 1).mean().item<float>() << std::endl;
  }
  if (world.rank() == 0) std::cout << "weights " << d.weights_hash() << g.weights_hash() << std::endl;
}
