// A user's program: rank 1 throws in the third barrier's place, and nobody catches it.

#include <stdexcept>

#include "lockstep/comm/world.h"

int main() {
  const lockstep::comm::World world = lockstep::comm::init();
  for (int step = 1;; ++step) {
    world.group()->node().member.set_step(std::uint64_t(step));
    if (step == 3 && world.rank() == 1) throw std::runtime_error("the learning rate is nan\nat frame 0");
    world.group()->barrier();
  }
}
