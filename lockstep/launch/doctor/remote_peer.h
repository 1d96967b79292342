#pragma once

// A doctor on another host, as this process sees it: a child process, the remote shell, with lines in both directions.

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/doctor/line_reader.h"

namespace lockstep::launch {

/// The words of --remote-shell, "ssh -p 2222"; without quotes or variables. Pure. Throws UsageError for none.
std::vector<std::string> remote_shell_words(const std::string& text);

/// What the remote shell is given: `shell` HOST "exec 'program' 'argument' ...", quoted for the shell there, and with
/// "cd 'folder' &&" before it where one is named. Pure.
std::vector<std::string> remote_command(std::vector<std::string> shell, const std::string& host,
                                        const std::vector<std::string>& program, const std::string& folder = "");

class RemotePeer {
 public:
  /// Starts it; it dies with this thread. Throws Error when there is no process to be had.
  explicit RemotePeer(const std::vector<std::string>& command);
  /// Closes its input, and kills it when it has not ended a second later.
  ~RemotePeer();
  RemotePeer(const RemotePeer&) = delete;
  RemotePeer& operator=(const RemotePeer&) = delete;

  using TimePoint = std::chrono::steady_clock::time_point;

  /// What stands behind `beginning` in the first line that begins so; others are skipped, as shells greet. Throws Error
  /// with the end of what it wrote to its standard error when there is none before `deadline`.
  std::string find(const std::string& beginning, TimePoint deadline);

  /// Sends a line.
  void send(const std::string& line, TimePoint deadline);

  /// Sends `line`; what stands behind `beginning` in the answer. Throws Error, also with what it says is wrong.
  std::string ask(const std::string& line, const std::string& beginning, TimePoint deadline);

 private:
  [[noreturn]] void complain(const std::string& why) const;

  base::UniqueFd in_;
  base::UniqueFd out_;
  base::UniqueFd errors_;  // a file in memory: what comes there nobody waits for
  base::UniqueFd pidfd_;
  pid_t pid_ = -1;
  LineReader lines_{-1};
};

}  // namespace lockstep::launch
