#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/agent.h"
#include "run_options.h"
#include "worker_place.h"

namespace lockstep::app {
namespace {

// A launcher inside a launcher would make a job of its own per worker.
void refuse_to_nest() {
  const rendezvous::Place place = rendezvous::place_from_environment();
  if (!has_torch_contract(place) && place.world_size == 1) return;
  let_rank_zero_speak(place);
  throw UsageError("run: this is rank " + std::to_string(place.rank) + " of a job that " + place.launcher +
                   " has started already: start the program without lockstep run");
}

}  // namespace

int run_command(const std::vector<std::string>& arguments) {
  const RunOptions options = parse_run_options(arguments);
  if (options.help) {
    std::fputs(run_help().c_str(), stdout);
    return kExitDone;
  }
  refuse_to_nest();
  // Python would say so itself, but once per worker.
  if (options.command.front().ends_with(".py") && access(options.command.front().c_str(), R_OK) != 0) {
    std::fprintf(stderr, "lockstep: cannot read '%s': %s\n", options.command.front().c_str(), std::strerror(errno));
    return errno == ENOENT ? launch::kExitNotFound : launch::kExitNotExecutable;
  }
  return launch::run_agent(
      {.command = launch::resolve_command(options.command), .workers = options.nproc_per_node, .grace = options.grace});
}

}  // namespace lockstep::app
