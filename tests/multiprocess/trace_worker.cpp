// A user's program that comes to a stop in its step 3, as its arguments say:
//
//   hung        rank 1 does not come to the all-reduce and never ends
//   late        rank 1 comes, long after the others have given up
//   killed      rank 1 dies
//   thrown      rank 1 throws, and nobody catches it
//   other       rank 1 calls another collective
//   part        rank 1 does not come to a barrier of a group of its own with rank 0; rank 2 waits for both in the world
//   unsent      rank 1 does not send what rank 0 waits for
//   none        all is well
//
// A second argument is the backend.

#include <ATen/ops/ones.h>

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>

#include "lockstep/comm/world.h"

using namespace std::chrono_literals;

// Until the others wait where this rank is missed. Of waits for the network its memory says nothing: they have had the
// time by then.
void let_the_others_come(lockstep::comm::Group& group) {
  std::this_thread::sleep_for(300ms);
  if (group.wire() != nullptr) return;
  const lockstep::base::Member& member = group.node().member;
  const auto end = std::chrono::steady_clock::now() + 10s;
  for (int peer = 0; peer < member.size(); ++peer)
    while (peer != member.rank() && member.page().ranks[peer].asleep.load() == 0 &&
           std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(100us);
}

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::string what = argc > 1 ? argv[1] : "none";
  const comm::World world = comm::init(
      {.backend = argc > 2 ? argv[2] : "auto", .timeout = what == "killed" ? 20s : 1s, .stall_warning = 0ms});
  const std::shared_ptr<comm::Group> part = world.group()->new_group({0, 1});
  for (int step = 1; step <= 3; ++step) {
    base::Member& member = world.group()->node().member;
    member.set_step(std::uint64_t(step));
    member.set_phase(base::Phase::forward);
    const bool is_it = step == 3 && world.rank() == 1;
    if (is_it && what == "hung") std::this_thread::sleep_for(60s);
    if (is_it && what == "late") std::this_thread::sleep_for(3s);
    if (is_it && what == "killed") raise(SIGKILL);
    if (is_it && (what == "thrown" || what == "other")) let_the_others_come(*world.group());
    if (is_it && what == "thrown") throw std::runtime_error("the learning rate is nan");
    if (is_it && what == "other") world.broadcast(at::ones({2, 3}));
    if (step == 3 && what == "part") {
      if (is_it) std::this_thread::sleep_for(60s);
      if (part) part->barrier();
    }
    if (step == 3 && what == "unsent") {
      const at::Tensor tensor = at::ones({4});
      if (world.rank() == 0) world.recv(tensor, 1, 7);
      if (world.rank() == 2) std::this_thread::sleep_for(60s);
    }
    const at::Tensor tensor = at::ones({2, 3});
    world.all_reduce(tensor);
  }
  return 0;
}
