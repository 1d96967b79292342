// Saves the whole job while it trains, and goes on from the newest checkpoint wherever it is started again: after a
// reboot, on another number of processes, in the middle of an epoch. The weights are those of a job that nobody
// interrupted:
//   lockstep run -n 2 build/bin/example_checkpointed_loop checkpoints
#include <iostream>

#include "lockstep/checkpoint.h"
#include "lockstep/lockstep.h"

struct Net : torch::nn::Module {
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(2, 32));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 2));
  at::Tensor forward(const at::Tensor& x) { return out(torch::tanh(hidden(x))); }
};

int main(int argc, char** argv) {
  lockstep::StopOn stop({SIGTERM});  // what a scheduler sends before it takes the machine away
  auto world = lockstep::init();
  if (argc != 2) throw lockstep::UsageError("usage: checkpointed_loop CHECKPOINTS");
  torch::manual_seed(0);
  at::Tensor points = torch::rand({12800, 2}) * 2 - 1;
  at::Tensor inside = (points.norm(2, 1) < 0.7).to(torch::kLong);  // of the circle of radius 0.7?
  lockstep::DistributedDataParallel ddp(std::make_shared<Net>(), world.group(), {.shards = 4});
  lockstep::data::DataLoader loader(lockstep::data::tensors(points, inside), ddp.part(),
                                    {.global_batch_size = 128, .shuffle = true});
  ddp.state().keep("loader", loader.kept());  // where it stands is a part of the checkpoint
  lockstep::checkpoint::BackgroundSaver saver(argv[1], ddp, {.keep = 3});
  const auto from = lockstep::checkpoint::resume(argv[1], ddp);  // begins anew where there is none
  if (world.rank() == 0 && !from.path.empty()) std::cout << "from step " << from.step << std::endl;
  lockstep::optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
  lockstep::checkpoint::save_on_failure(argv[1], ddp);  // by the launcher, when no process is left that could
  for (auto epoch = loader.epoch(); epoch < 10; ++epoch) {
    loader.set_epoch(epoch);
    for (auto& batch : loader) {
      for (auto& shard : ddp.shards(batch)) {
        at::Tensor loss = torch::nn::functional::cross_entropy(ddp(shard.data), shard.target);
        loss.backward();
        ddp.record(loss.item<double>(), shard.target.size(0));
      }
      optimizer.step();
      if (ddp.steps() % 20 == 0) saver.save();
      if (ddp.should_stop()) {  // on all ranks behind the same step
        saver.wait();
        saver.save();
        return lockstep::kExitStopped;  // the saver waits for its thread
      }
    }
    if (world.rank() == 0) std::cout << "epoch " << epoch + 1 << "  loss " << ddp.last_record().loss << std::endl;
  }
  saver.wait();
  saver.save();  // the last step
  if (world.rank() == 0) std::cout << "weights " << ddp.weights_hash() << std::endl;
}
