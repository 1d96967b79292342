#pragma once

// The output of the workers of one attempt: folders, files, and the router that fills them.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/output/last_lines.h"
#include "lockstep/launch/output/log_router.h"
#include "lockstep/launch/output/logs.h"

namespace lockstep::launch {

class AttemptLogs {
 public:
  /// Makes folders and files below `run_folder` (empty: none) and starts a router where some output
  /// has to pass through one. Parameters as of plan_logs(). Call it before the workers are started. Throws UsageError,
  /// Error.
  AttemptLogs(const LogOptions& options, const std::string& run_folder, int attempt, int workers, int first_rank);

  /// What the worker's stdout and stderr become; -1: they stay the agent's.
  int stdout_of(int rank) const { return stdout_[std::size_t(rank)]; }
  int stderr_of(int rank) const { return stderr_[std::size_t(rank)]; }
  /// The path of the worker's error file; empty where there is no folder.
  const std::string& error_file_of(int rank) const { return ranks_[std::size_t(rank)].error_file; }

  /// Whether the router copies something to the console.
  bool on_console() const;

  /// The router's process; -1: there is none.
  pid_t router_pid() const { return router_ ? router_->pid() : -1; }
  /// Readable when the router has ended, which it must not before finish(); -1: there is none.
  int router_pidfd() const { return router_ ? router_->pidfd() : -1; }

  /// All workers are started.
  void close_writers();
  /// All workers have ended: files what they wrote, and shows it within `deadline` and until `stopped`, while the loop
  /// goes on. Returns false when something did not get where it should.
  bool finish(EventLoop& loop, std::chrono::milliseconds deadline, const std::function<bool()>& stopped);
  /// After finish(): whether the files hold what the workers wrote.
  bool filed() const { return !router_ || router_->filed(); }
  /// After finish(): the router's process where it could not be killed; -1: it has ended, or there was none.
  pid_t left_behind() const { return router_ && router_->left_behind() ? router_->pid() : -1; }

  /// The last lines of the worker's files. `unseen`: only of those that are not on the console.
  std::vector<LogTail> tails(int rank, bool unseen) const;

 private:
  int route(const StreamLog& stream, int number, const std::string& prefix, const std::vector<std::string>& filters);

  std::vector<RankLogs> ranks_;
  base::UniqueFd null_;
  std::vector<LogStream> streams_;
  std::unique_ptr<LogRouter> router_;
  std::vector<int> stdout_;
  std::vector<int> stderr_;
};

}  // namespace lockstep::launch
