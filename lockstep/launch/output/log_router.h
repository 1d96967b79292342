#pragma once

// The job's log router: a process between the workers' output and its files and console, so
// that neither a slow terminal nor a slow disk can hold up the agent.
//
//   worker -- pipe --> router --> file      at once, and always
//                                  |
//                                  +------> console, filter file: as fast as they take it
//
// The console is fed from the files: a terminal that stands still costs disk, no memory, and
// stops no worker. The router is one loop around poll() without threads: the console is
// written to without waiting (base/outlet.h), so nothing has to wait beside it; and it
// is forked, not executed, which would not go well with threads.
//
// Promises:
//   - bytes pass untouched; whole lines only on the console, each with its prefix, those of
//     different streams never mixed; one of up to PIPE_BUF bytes is one write;
//   - a last line without an end is shown when its pipe ends or the router finishes, with "\n";
//   - a full or broken disk never reaches a worker: it is told once on stderr, later output is
//     tried again, and the gap is noted in the file (its size), or at the end on stderr. What
//     a file did not take is not on the console either;
//   - a console that is gone stops the copy, not the files;
//   - Ctrl-C and other signals that end programs do not end it;
//   - files first, consoles second: what is in the pipes at the end is filed whatever signals come, only what is
//     shown may be cut off;
//   - its own death breaks no worker's pipe: the agent, which keeps the read ends too, learns of it first;
//   - when the agent dies, it ends within a second, having filed what the workers wrote.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/output/log_file.h"

namespace lockstep::launch {

/// What to do with the bytes of one pipe.
struct LogStream {
  std::string file;                  ///< made anew; empty: one without a name in TMPDIR, for the console to follow
  int console = -1;                  ///< 1 or 2: copied there; -1: not
  std::string prefix;                ///< of each line on the console and in the filter file
  std::string filter_file;           ///< lines that hold one of `filters` are copied here; may be
  std::vector<std::string> filters;  ///< shared by streams. Both or none.
};

/// Not thread-safe. Make it in a process without threads, before the workers and once an attempt.
class LogRouter {
 public:
  /// Opens the files (their folders are there: make_attempt_folders) and starts the process,
  /// which writes to this process's stdout and stderr. UsageError when a file cannot be opened,
  /// Error when there is no process or pipe to be had.
  explicit LogRouter(const std::vector<LogStream>& streams);
  /// finish() with half a second, if that was not called; without descriptors for it, the end of the output is lost.
  ~LogRouter();
  LogRouter(const LogRouter&) = delete;
  LogRouter& operator=(const LogRouter&) = delete;

  /// The descriptor for the worker's dup2, close-on-exec, until close_writers().
  int writer(std::size_t stream) const { return writers_[stream].get(); }
  /// Once all workers are started: the pipes' ends in this process would keep them open.
  void close_writers() { writers_.clear(); }

  /// All workers have ended. What is in the pipes is filed, whoever still holds their other
  /// ends (who writes later gets SIGPIPE): within kFiling, for a disk may stand still, and whatever `stopped` says.
  /// Then what is filed is shown; the process is killed when that takes longer than `deadline`, or when `stopped`
  /// (asked before each turn of the loop), and left behind when it does not die of that within kDeathWait. For a router
  /// that has died before, another one does both. True when every byte reached its file and console. The same answer
  /// again when called again. A loop that cannot watch the process (no memory) is as one that waited in vain. Throws
  /// what a handler of the loop throws.
  bool finish(EventLoop& loop, std::chrono::milliseconds deadline, const std::function<bool()>& stopped);
  /// The same for who has no loop, and waits whatever happens. Throws Error where none can be made.
  bool finish(std::chrono::milliseconds deadline);
  /// After finish(): whether what was in the pipes is in the files, as far as they took it.
  bool filed() const { return filed_; }

  static constexpr std::chrono::milliseconds kFiling{30'000};

  /// Readable when the router has ended: before finish() that is a failure, for nobody empties the pipes any more.
  int pidfd() const { return pidfd_.get(); }
  pid_t pid() const { return pid_; }  ///< -1 when its end was seen
  /// After finish(): whether it was killed and lives, for a disk may hold it.
  bool left_behind() const { return pid_ >= 0; }

 private:
  void start(Files files);
  bool has_ended() const;
  void await_files(EventLoop& loop);
  std::optional<int> take_status(std::chrono::milliseconds at_most);

  const std::vector<LogStream> streams_;
  std::vector<base::UniqueFd> readers_;  // so that no pipe breaks when the router dies
  std::vector<base::UniqueFd> writers_;
  base::UniqueFd control_;
  base::UniqueFd pidfd_;
  pid_t pid_ = -1;
  bool filed_ = false;
  std::optional<bool> outcome_;
};

}  // namespace lockstep::launch
