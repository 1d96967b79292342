// float32, bfloat16 and float16 beside each other. In float16 small gradients vanish unless the loss is scaled; a scale
// that is too large overflows, and its step updates nothing, on all processes alike.
//   lockstep run -n 2 build/bin/example_06_mixed_precision
#include <iostream>

#include "lockstep/lockstep.h"

int main() {
  auto world = lockstep::init();
  torch::manual_seed(0);
  at::Tensor points = torch::rand({1600, 2}) * 2 - 1;
  at::Tensor inside = (points.norm(2, 1) < 0.7).to(torch::kLong);  // of the circle of radius 0.7?
  auto train = [&](const std::string& name, lockstep::Amp amp) {
    torch::manual_seed(1);
    torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 2));
    lockstep::DistributedDataParallel ddp(model, world.group(), {.name = name, .amp = amp});
    lockstep::GradScaler scaler({.init_scale = 0x1p40, .growth_interval = 50, .enabled = amp == lockstep::Amp::fp16});
    lockstep::data::DataLoader loader(lockstep::data::tensors(points, inside), ddp.part(),
                                      {.batch_size = 40 / world.size(), .shuffle = true});
    int skipped = 0;
    ddp.state().keep("scaler", scaler.kept());  // each step commits these, a restart finds them again
    ddp.state().keep("loader", loader.kept());
    ddp.state().keep("skipped", skipped);
    lockstep::optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
    for (auto epoch = loader.epoch(); epoch < 5; ++epoch) {  // from 0, or from where a killed process left off
      loader.set_epoch(epoch);
      for (auto& batch : loader) {
        at::Tensor loss = torch::nn::functional::cross_entropy(ddp(batch.data), batch.target);
        scaler.scale(loss).backward();
        skipped += !scaler.step(optimizer, {.max_norm = 5});  // of the unscaled gradients
        scaler.update();
      }
    }
    at::Tensor right = (ddp(points).argmax(1) == inside).to(torch::kFloat).mean();
    if (world.rank() == 0)
      std::cout << name << "  accuracy " << right.item<float>() << "  skipped " << skipped << "  scale "
                << scaler.get_scale() << std::endl;
    return ddp.weights_hash();
  };
  std::string exact = train("float32", lockstep::Amp::none);
  bool differs = train("bfloat16", lockstep::Amp::bf16) != exact && train("float16", lockstep::Amp::fp16) != exact;
  if (world.rank() == 0) std::cout << (differs ? "rounded otherwise" : "the same bits") << std::endl;
}
