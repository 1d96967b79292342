// A user's program of one process that dies between its second checkpoint and the link to it: to be called with the
// folder.

#include <csignal>

#include "lockstep/checkpoint.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/lockstep.h"

int main(int argc, char** argv) {
  auto world = lockstep::init();
  if (argc != 2) throw lockstep::UsageError("usage: unlinked_worker CHECKPOINTS");
  torch::manual_seed(0);
  torch::nn::Linear net(2, 1);
  lockstep::DistributedDataParallel ddp(net, world.group());
  lockstep::optim::SGD optimizer(ddp, {.lr = 0.1});
  lockstep::checkpoint::save_on_failure(argv[1], ddp);
  for (int step = 0; step < 2; ++step) {
    ddp(torch::ones({4, 2})).square().mean().backward();
    optimizer.step();
    lockstep::checkpoint::save(argv[1], ddp);
  }
  lockstep::checkpoint::link_step(argv[1], lockstep::checkpoint::kLastName, 1);  // as it was before the second one
  raise(SIGKILL);
}
