#pragma once

// The folder of one run (--output-dir): config.json, metrics.jsonl, metrics.csv and a
// TensorBoard event file, mistakes.json, run.id that says whose they are, and run.lock. log/ and checkpoints/ appear
// with their first file and are not touched here.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/base/machine_lock.h"
#include "lockstep/metrics/run_lock.h"

namespace lockstep::metrics {

/// Who wants a folder.
struct RunClaim {
  std::string run_id;      ///< of all attempts of this job and of no other job; one line (rendezvous/run_id.h)
  int attempt = 0;         ///< larger than in all that the job was before; 0: it is its first
  bool overwrite = false;  ///< another run's results may be replaced
  std::shared_ptr<RunLock> held = {};  ///< of lock_used(): whatever run used the folder is continued, with this
                                       ///< configuration
  /// Whether a later attempt whose config.json is `now` goes on where an earlier one wrote `there`.
  std::function<bool(std::string_view there, std::string_view now)> goes_on = std::equal_to<std::string_view>();
  std::chrono::milliseconds patience = base::kLostMachine;  ///< of a later attempt, see RunLock
};

/// Locks a folder that a run has used, or one that has checkpoints, before what is in it is looked at: who goes on from
/// there chooses what no other job changes any more. Nothing where no run was. Errors: see RunLock, of who comes again.
std::shared_ptr<RunLock> lock_used(const std::string& path, std::chrono::milliseconds patience = base::kLostMachine);

/// A folder that is ready for the files of a run, and this process's while the object lives.
class RunDirectory {
 public:
  /// Makes `path` with its parents, locks it, and writes run.id and config.json, each whole or not at all. A folder is
  /// used when it holds config.json or metrics.jsonl. One that an earlier attempt of the same run uses keeps the rest,
  /// when claim.goes_on() says so of its config.json, and so is one whose lock is `held`; another run's is refused,
  /// or with `overwrite` the files that a run made (is_run_file()) are removed and nothing else. Throws UsageError
  /// naming the path when it is another run's or in use by a living process, no folder, or cannot be written; nothing
  /// has been removed then. That it cannot be written is an Error for a later attempt, and where the lock is `held`.
  static RunDirectory create(const std::string& path, std::string_view config_json, const RunClaim& claim);

  const std::string& path() const { return path_; }
  std::string metrics_jsonl() const { return path_ + "/metrics.jsonl"; }
  std::string metrics_csv() const { return path_ + "/metrics.csv"; }
  std::string mistakes_json() const;

 private:
  RunDirectory(std::string path, std::shared_ptr<RunLock> lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  std::shared_ptr<RunLock> lock_;
};

/// Whether a file of this name, directly in a run directory, was made by a run; the lock's file, which stays, is none.
bool is_run_file(std::string_view name);

}  // namespace lockstep::metrics
