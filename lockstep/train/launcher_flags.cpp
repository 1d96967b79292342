#include "lockstep/train/launcher_flags.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::train {

void require_no_launcher_flags(const Options& options, const std::string& launcher, int world_size) {
  const bool alone = launcher == "alone";
  const std::string& program = options.own.program;
  const std::string starts = program.empty() ? "this worker was started without one: use lockstep train"
                                             : "this program was started without one: use lockstep run -n N " + program;
  const LauncherOptions& l = options.launcher;
  const bool restarts = options.max_restarts > 0 && (alone || !options.restarts_by_file);
  for (const auto& [flag, is_given] : {std::pair("--max-restarts " + std::to_string(options.max_restarts), restarts),
                                       std::pair(std::string("--grace-period"), l.grace_period.has_value()),
                                       std::pair("--log-dir " + base::shown(l.log_dir), !l.log_dir.empty()),
                                       std::pair("--redirects " + base::shown(l.redirects), !l.redirects.empty()),
                                       std::pair("--tee " + base::shown(l.tee), !l.tee.empty())})
    if (is_given)
      throw UsageError(flag + " is the launcher's, and " +
                       (alone ? starts : launcher + " has started this job: give it to " + launcher));
  const bool holds_elsewhere =
      options.nproc_by_file && (!alone || (options.processes() == 1 && !options.nproc_by_gpus));
  if ((options.nproc_per_node || options.nproc_by_gpus) && !holds_elsewhere)
    throw UsageError(
        "--nproc-per-node " + (options.nproc_by_gpus ? "gpu" : std::to_string(*options.nproc_per_node)) +
        " is the launcher's, and " +
        (alone ? starts
               : launcher + " has started " + std::to_string(world_size) + " processes already: leave it out"));
}

}  // namespace lockstep::train
