#pragma once

// A doctor on another host, as this process sees it: a child process, the remote shell, with lines in both directions.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/doctor/line_reader.h"
#include "lockstep/launch/doctor/other_doctor.h"

namespace lockstep::launch {

/// The words of --remote-shell, "ssh -p 2222"; without quotes or variables. Pure. Throws UsageError for none.
std::vector<std::string> remote_shell_words(const std::string& text);

/// What the remote shell is given: `shell` HOST "exec 'program' 'argument' ...", quoted for the shell there, and with
/// "cd 'folder' &&" before it where one is named. Pure.
std::vector<std::string> remote_command(std::vector<std::string> shell, const std::string& host,
                                        const std::vector<std::string>& program, const std::string& folder = "");

class RemotePeer : public OtherDoctor {
 public:
  /// Starts it; it dies with this thread. Throws Error when there is no process to be had.
  explicit RemotePeer(const std::vector<std::string>& command);
  /// Closes its input, and kills it when it has not ended a second later.
  ~RemotePeer() override;

 private:
  std::optional<std::string> next(TimePoint deadline) override { return lines_.next(deadline); }
  bool write(const std::string& line, TimePoint deadline) override { return write_line(in_.get(), line, deadline); }
  /// The last line of its standard error.
  std::string last_words() const override;

  base::UniqueFd in_;
  base::UniqueFd out_;
  base::UniqueFd errors_;  // a file in memory: what comes there nobody waits for
  base::UniqueFd pidfd_;
  pid_t pid_ = -1;
  LineReader lines_{-1};
};

}  // namespace lockstep::launch
