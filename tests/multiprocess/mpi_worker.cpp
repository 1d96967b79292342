// A user's program for mpirun: mpi_worker BACKEND TASK. "train SHARDS [zero1]": it trains and says the weights' hash;
// "die": rank 1 dies between two calls; "differ": the ranks do not call the same. What is lost then is said on standard
// output. "late": rank 0 comes late to the last call; "exit": rank 1 ends by exit(3) while rank 0 waits for it;
// "outlive": the group lives until the process ends, in a child that each rank has, too.

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string_view>
#include <thread>

#include "lockstep/lockstep.h"

namespace {

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }

struct Net : torch::nn::Module {
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(20, 300));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(300, 5));
  at::Tensor forward(const at::Tensor& x) { return out(torch::tanh(hidden(x))); }
};

// Ten steps.
void train(const lockstep::World& world, int shards, bool zero1) {
  torch::manual_seed(0);
  const int samples = 24 * shards;
  const at::Tensor inputs = torch::rand({10 * samples, 20}), targets = torch::randint(5, {10 * samples}, torch::kLong);
  lockstep::DistributedDataParallel ddp(std::make_shared<Net>(), world.group(),
                                        {.shards = shards, .overlap_bytes = 4096, .zero1 = zero1});
  lockstep::data::DataLoader loader(lockstep::data::tensors(inputs, targets), ddp.part(),
                                    {.global_batch_size = samples, .shuffle = true});
  lockstep::optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
  for (auto& batch : loader) {
    for (auto& shard : ddp.shards(batch))
      torch::nn::functional::cross_entropy(ddp(shard.data), shard.target).backward();
    optimizer.step();
  }
  const auto hash = ddp.weights_hash();
  std::ostringstream text;
  text << "weights " << hash;
  if (world.rank() == 0) say(text.str());
}

void meet(const lockstep::World& world, bool dies) {
  const at::Tensor large = torch::ones({2'000'000});
  for (int i = 0; i < 3; ++i) world.all_reduce(large);
  if (dies && world.rank() == 1) raise(SIGKILL);
  if (!dies) world.all_reduce(torch::ones({world.rank() == 0 ? 3 : 4}));
  for (int i = 0; i < 3; ++i) world.all_reduce(large);
}

void come_late(const lockstep::World& world) {
  world.all_reduce(torch::ones({10}));
  if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  world.all_reduce(torch::ones({10}));
}

void leave_by_exit(const lockstep::World& world) {
  world.all_reduce(torch::ones({10}));
  if (world.rank() == 1) std::exit(3);
  world.all_reduce(torch::ones({10}));
}

std::shared_ptr<lockstep::comm::Group> outliving;

void outlive(const lockstep::World& world) {
  outliving = world.group();
  outliving->all_reduce(torch::ones({10}));
  if (const pid_t child = fork(); child == 0) {
    outliving.reset();
    _exit(0);
  } else {
    waitpid(child, nullptr, 0);
  }
  outliving->all_reduce(torch::ones({10}));
}

void run(std::string_view task, int shards, bool zero1, const lockstep::World& world) {
  if (task == "train") return train(world, shards, zero1);
  if (task == "late") return come_late(world);
  if (task == "exit") return leave_by_exit(world);
  if (task == "outlive") return outlive(world);
  meet(world, task == "die");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view task = argv[2];
  auto world = lockstep::init({.backend = argv[1], .idle_cores_hint = false});
  const std::string me = "rank " + std::to_string(world.rank());
  try {
    run(task, argc > 3 ? std::atoi(argv[3]) : 0, argc > 4, world);
    if (task != "train") say(me + " is done");
  } catch (const lockstep::GroupAborted& lost) {
    say(me + " lost rank " + std::to_string(lost.failure().rank) + ": " + lost.failure().cause);
    return 1;
  } catch (const lockstep::Error& error) {
    say(me + ": " + error.what());
    return 1;
  }
}
