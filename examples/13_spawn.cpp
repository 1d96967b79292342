// A job without a launcher: the program starts its own processes, as torch.multiprocessing.spawn does.
//   build/bin/example_13_spawn 4
#include <cstdlib>
#include <iostream>

#include "lockstep/lockstep.h"

namespace {

// y = 3x + 1, from samples of its own on each rank.
void train(int rank) {
  auto world = lockstep::init();
  torch::manual_seed(0);
  torch::nn::Linear line(1, 1);
  lockstep::DistributedDataParallel ddp(line, world.group());
  lockstep::optim::SGD optimizer(ddp, {.lr = 0.3});
  for (auto step = ddp.next_step(); step <= 500; ++step) {  // 1 at a first start
    torch::manual_seed(step * world.size() + rank);         // a batch is a function of step and rank
    at::Tensor x = torch::rand({32, 1});
    torch::nn::functional::mse_loss(ddp(x), 3 * x + 1).backward();
    optimizer.step();
  }
  if (rank == 0)
    std::cout << world.size() << " processes: y = " << line->weight.item<float>() << " x + " << line->bias.item<float>()
              << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    lockstep::spawn(train, argc > 1 ? std::atoi(argv[1]) : 2);
  } catch (const lockstep::Error& error) {  // the first failure of a rank; nobody is left
    std::cerr << error.what() << std::endl;
    return lockstep::exit_code(error);
  }
}
