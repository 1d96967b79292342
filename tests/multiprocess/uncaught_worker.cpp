// A user's program: rank 1 throws in the third barrier's place, and nobody catches it. With an argument it is an error
// of libtorch, wrong input that every rank finds, or one that has told the group already; or rank 1 has left the group,
// or is killed, of which rank 0 hears only.

#include <ATen/ops/ones.h>

#include <csignal>
#include <stdexcept>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/comm/world.h"

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "left") {
    if (lockstep::comm::init().rank() == 1) throw lockstep::Error("cannot write 'rows.csv'");
    return 0;
  }
  if (what == "rethrown") {
    try {
      const lockstep::comm::World world = lockstep::comm::init();
      if (world.rank() == 1) raise(SIGKILL);
      world.group()->barrier();
    } catch (const lockstep::Error&) {
      throw;  // when the group is gone
    }
  }
  const lockstep::comm::World world = lockstep::comm::init();
  for (int step = 1;; ++step) {
    world.group()->node().member.set_step(std::uint64_t(step));
    if (step == 3 && world.rank() == 1 && what == "torch") at::ones({2}).add_(at::ones({3}));  // an error of libtorch
    if (step == 3 && world.rank() == 1 && what.empty())
      throw std::runtime_error("the learning rate is nan\nat frame 0");
    if (step == 3 && what == "usage") throw lockstep::UsageError("cannot open 'table.csv'");
    if (step == 3 && world.rank() == 1 && what == "told")
      lockstep::comm::or_abort(*world.group(), [] { throw lockstep::UsageError("the hook made no tensor"); });
    world.group()->barrier();
  }
}
