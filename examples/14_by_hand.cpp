// Ranks that are started by hand, without a launcher: each is told where they meet, who it is, and how many there are.
//   build/bin/example_14_by_hand tcp://127.0.0.1:29500 0 2 &
//   build/bin/example_14_by_hand tcp://127.0.0.1:29500 1 2
#include <cstdlib>
#include <iostream>

#include "lockstep/lockstep.h"

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: " << argv[0] << " INIT_METHOD RANK WORLD_SIZE [BACKEND] [SECONDS]" << std::endl;
    return lockstep::kExitUsage;
  }
  auto world = lockstep::init({.init_method = argv[1],
                               .rank = std::atoi(argv[2]),
                               .world_size = std::atoi(argv[3]),
                               .backend = argc > 4 ? argv[4] : "auto",
                               .timeout = std::chrono::seconds(argc > 5 ? std::atoi(argv[5]) : 60)});
  at::Tensor sum = torch::full({2}, world.rank() + 1);
  world.all_reduce(sum);
  std::cout << "rank " << world.rank() << " of " << world.size() << ", on its node " << world.local_rank() << " of "
            << world.group()->topology().local_world << ": sum " << sum[0].item<int>() << std::endl;
}
