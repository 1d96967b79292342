#pragma once

// What the log router's process does (log_router.h).

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/output/log_file.h"
#include "lockstep/launch/output/log_follower.h"
#include "lockstep/launch/output/log_router.h"

namespace lockstep::launch {

class LogLoop {
 public:
  /// Opens files and filter files, anew or, after a loop that was killed, to go on at their ends. UsageError.
  LogLoop(const std::vector<LogStream>& streams, std::vector<base::UniqueFd> pipes, Files files);
  LogLoop(const LogLoop&) = delete;
  LogLoop& operator=(const LogLoop&) = delete;

  /// In the new process: takes the consoles over. Call it once, before run().
  void attach_consoles();
  /// The descriptors in use.
  std::vector<int> descriptors() const;

  /// Runs until `control`, a socket, has given a byte and everything is written, or the other
  /// end is gone and a part of a second has passed. The byte is answered by one as soon as all files
  /// are written; only consoles are waited for then. True when every byte got where it should.
  bool run(int control);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage { running, finishing, orphaned };

  void wait_and_work(int control);
  void on_control(int control);
  bool read_pipe(std::size_t stream, std::size_t most);
  void drain();
  void end_files();
  void finish_filters();
  void tell_errors();
  void forget();
  bool over() const;
  bool idle() const;
  bool complete() const;
  template <class Call>
  void each_follower(Call call);

  const std::vector<LogStream> streams_;
  std::vector<base::UniqueFd> pipes_;  // read ends, non-blocking; empty when ended
  std::vector<LogFile> files_;
  std::deque<Follower> filters_;
  std::deque<Follower> consoles_;  // the first is stderr, where errors are told
  std::string buffer_;
  Stage stage_ = Stage::running;
  Clock::time_point deadline_ = Clock::time_point::max();
  bool told_file_ = false;
  bool told_filter_ = false;
};

}  // namespace lockstep::launch
