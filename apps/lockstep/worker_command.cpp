#include "worker_command.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "child.h"
#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/device/facts/decision.h"
#include "lockstep/device/facts/driver.h"
#include "lockstep/launch/agent/agent.h"
#include "lockstep/launch/machine/machine.h"
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
  return has_torch_contract(place) || place.world_size > 1 || !(options.nproc_per_node || options.nproc_by_gpus);
}

// The GPUs of this node's workers: as many as there are, and enough of them, before any is started.
int count_workers(const train::Options& options) {
  device::CudaFacts gpus;
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) gpus.visible = visible;
  gpus.devices = launch::count_gpus(gpus.visible ? &*gpus.visible : nullptr);
  if (options.nproc_by_gpus && gpus.devices == 0)
    throw UsageError("--nproc-per-node gpu: this machine shows no NVIDIA GPU");
  const int workers = options.nproc_by_gpus ? gpus.devices : options.processes();
  const device::Wanted wanted = device::parse_wanted(options.device);
  if (wanted.kind == device::WantedKind::cuda) gpus.no_driver = device::why_no_driver();
  device::require_for_workers(wanted, workers, gpus);
  return workers;
}

// Those near the GPU of each worker, unless each keeps to some of its own, or has all GPUs.
std::vector<std::vector<int>> cores_of(const train::Options& options, int workers) {
  const device::Wanted wanted = device::parse_wanted(options.device);
  if (wanted.kind != device::WantedKind::cuda || options.bind_to != "none" || train::is_replicated(options)) return {};
  std::vector<int> gpus(std::size_t(workers), wanted.index.value_or(0));
  if (!wanted.index) std::iota(gpus.begin(), gpus.end(), 0);
  return launch::cores_of_workers(gpus);
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
    launch::Plan plan{.command = {worker}, .workers = count_workers(options), .max_restarts = options.max_restarts};
    plan.worker_cores = cores_of(options, plan.workers);
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
