// A user's program: rank 1 throws in the third barrier's place, and nobody catches it; with an argument libtorch does.

#include <ATen/ops/ones.h>

#include <stdexcept>

#include "lockstep/comm/world.h"

int main(int argc, char**) {
  const lockstep::comm::World world = lockstep::comm::init();
  for (int step = 1;; ++step) {
    world.group()->node().member.set_step(std::uint64_t(step));
    if (step == 3 && world.rank() == 1 && argc > 1) at::ones({2}).add_(at::ones({3}));  // an error of libtorch
    if (step == 3 && world.rank() == 1) throw std::runtime_error("the learning rate is nan\nat frame 0");
    world.group()->barrier();
  }
}
