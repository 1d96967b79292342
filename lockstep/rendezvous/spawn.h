#pragma once

// Ranks without a launcher: a function in several processes of this machine, as torch.multiprocessing.spawn.
//
//   lockstep::spawn([](int rank) {
//     auto world = lockstep::init();
//     ...
//   }, 4);

#include <chrono>
#include <functional>

namespace lockstep::rendezvous {

struct SpawnOptions {
  /// How long the others have, once one has failed, between SIGTERM and SIGKILL.
  std::chrono::milliseconds grace{5'000};
};

/// Calls body(rank) in `processes` new processes, whose environment makes them the ranks of a job (RANK, WORLD_SIZE and
/// the rest of torchrun's variables) that init() joins, and returns when each has returned from it. What body leaves in
/// memory stays in its process. They end with this thread, whatever ends it; no static object is destroyed in them.
///
/// As long as this process has one thread it forks, and body goes on from the state of this call. Else the program
/// starts anew in each process, with the same arguments: what stands before this call runs again there, up to here. So
/// the calls of a program must come in the same order in all its processes.
///
/// When body throws, or a process ends otherwise, the others are ended and reaped, and the first failure is thrown
/// here: "spawn: rank 1: …", UsageError when it was one, else Error. A GroupAborted counts only where nothing else is
/// found, for it tells of another rank's failure. UsageError for fewer than one process, or where this process is a
/// rank of a job already.
void spawn(const std::function<void(int rank)>& body, int processes, const SpawnOptions& options = {});

}  // namespace lockstep::rendezvous

namespace lockstep {
using rendezvous::spawn;
using rendezvous::SpawnOptions;
}  // namespace lockstep
