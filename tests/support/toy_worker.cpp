// A worker for launcher tests: joins the job's control page as the trainer does, goes to
// step 17 and then does what its argument says.
//
//   meet              all leave together
//   die               rank 1 is killed in the update of step 17, the others wait for it
//   fail CODE         rank 1 fails with that exit code and tells it slowly, as under load

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/member.h"
#include "lockstep/rendezvous/segment_exchange.h"

namespace {

using namespace lockstep;

int work(base::Member& member, const std::string& task, int code) {
  member.barrier();
  member.set_step(17);
  member.set_phase(base::Phase::update);
  if (task != "meet" && member.rank() == 1) {
    if (task == "die") kill(getpid(), SIGKILL);
    member.fail("the toy is broken", code);
    // The peers have ended long before this line is out.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::fputs("lockstep: error: the toy is broken\n", stderr);
    return code;
  }
  member.barrier();
  std::printf("rank %d of %d\n", member.rank(), member.size());
  return kExitDone;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string task = argc > 1 ? argv[1] : "meet";
  try {
    const rendezvous::Place place = rendezvous::place_from_environment();
    const base::Segment segment = rendezvous::share_segment(place, std::chrono::seconds(20));
    base::Member member(segment.control(), place.local_rank, std::chrono::seconds(20));
    return work(member, task, argc > 2 ? std::atoi(argv[2]) : 1);
  } catch (const std::exception& error) {
    return exit_code(error);  // quiet: the rank that failed first speaks
  }
}
