#include <cstdio>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/agent/agent.h"
#include "lockstep/train/launcher_flags.h"
#include "lockstep/train/options.h"
#include "worker_place.h"

namespace lockstep::app {
namespace {

train::Parsed parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"lockstep train"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return train::parse_options(int(argv.size()), argv.data());
}

// Under torchrun and its like this process is a worker. A task of mpirun or srun that is
// alone may be one, or the agent of several: -n decides.
bool is_worker(const rendezvous::Place& place, const train::Options& options) {
  if (place.launcher == "alone") return false;
  return has_torch_contract(place) || place.world_size > 1 || !options.nproc_per_node;
}

int train_as(const rendezvous::Place& place, const std::vector<std::string>& arguments) {
  const train::Parsed parsed = parse(arguments);
  if (!parsed.text.empty()) return std::fputs(parsed.text.c_str(), stdout) < 0 ? kExitFailure : kExitDone;
  const std::string trainer = own_folder() + "/lockstep-trainer";
  if (!is_worker(place, parsed.options)) {
    launch::Plan plan{
        .command = {trainer}, .workers = parsed.options.processes(), .max_restarts = parsed.options.max_restarts};
    plan.command.insert(plan.command.end(), arguments.begin(), arguments.end());
    return launch::run_agent(plan);
  }
  train::require_no_launcher_flags(parsed.options, place.launcher, place.world_size);
  replace_by(trainer, arguments);
}

}  // namespace

int train_command(const std::vector<std::string>& arguments) {
  const rendezvous::Place place = rendezvous::place_from_environment();
  try {
    return train_as(place, arguments);
  } catch (const UsageError&) {
    let_rank_zero_speak(place);
    throw;
  }
}

}  // namespace lockstep::app
