#include "worker_command.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "child.h"
#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/agent/agent.h"
#include "lockstep/train/launcher_flags.h"
#include "lockstep/train/options_download.h"
#include "lockstep/train/portable_arithmetic.h"
#include "worker_place.h"

namespace lockstep::app {
namespace {

// Under torchrun and its like this process is a worker. A task of mpirun or srun that is
// alone may be one, or the agent of several: -n decides.
bool is_worker(const rendezvous::Place& place, const train::Options& options) {
  if (place.launcher == "alone") return false;
  return has_torch_contract(place) || place.world_size > 1 || !options.nproc_per_node;
}

launch::LogOptions logs_of(const train::LauncherOptions& options, int workers) {
  launch::LogOptions logs{.dir = options.log_dir};
  if (!options.redirects.empty()) logs.redirects = launch::StdMap::parse("--redirects", options.redirects);
  if (!options.tee.empty()) logs.tee = launch::StdMap::parse("--tee", options.tee);
  launch::require_ranks("--redirects", logs.redirects.named(), workers);
  launch::require_ranks("--tee", logs.tee.named(), workers);
  return logs;
}

int download_and_run(const rendezvous::Place& place, train::Options options, const std::string& program,
                     const std::vector<std::string>& arguments) {
  if (const int code = run_child(own_folder() + "/lockstep-data", train::download_words(options)); code != kExitDone)
    return code;
  options.download = false;
  for (const char* variable : {"LOCKSTEP_DOWNLOAD", "LOCKSTEP_DOWNLOAD_MIRROR"}) ::unsetenv(variable);
  return run_as_worker_or_agent(place, options, program, train::words_after_download(arguments, options));
}

}  // namespace

int run_as_worker_or_agent(const rendezvous::Place& place, const train::Options& options, const std::string& program,
                           const std::vector<std::string>& arguments) {
  const std::string worker = own_folder() + "/" + program;
  if (options.download) {
    if (is_worker(place, options)) train::require_no_download(options);  // each would bring the files
    return download_and_run(place, options, program, arguments);
  }
  train::set_arithmetic(options);
  if (!is_worker(place, options)) {
    launch::Plan plan{.command = {worker}, .workers = options.processes(), .max_restarts = options.max_restarts};
    plan.logs = logs_of(options.launcher, plan.workers);
    if (const auto grace = options.launcher.grace_period)
      plan.grace = std::chrono::milliseconds(std::llround(*grace * 1000));
    plan.state_saver = checkpoint_program();
    if (saves(options.checkpoints, options.output_dir))
      for (const int signal : options.checkpoints.stop_on)
        if (std::ranges::find(plan.signals, signal) == plan.signals.end()) plan.signals.push_back(signal);
    plan.command.insert(plan.command.end(), arguments.begin(), arguments.end());
    return launch::run_agent(plan);
  }
  train::require_no_launcher_flags(options, place.launcher, place.world_size);
  replace_by(worker, arguments);
}

}  // namespace lockstep::app
