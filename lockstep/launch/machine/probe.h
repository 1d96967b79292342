#pragma once

// Runs another program for its output, for a limited time.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

struct ProbeResult {
  std::optional<int> status;  ///< as of waitpid; nothing: it could not be started, or was too slow
  std::string out;            ///< of stdout, the first 64 KiB
  std::string err;            ///< of stderr, the same; or why there is no status
};

/// Runs `command` (a path first) in this process's environment, with nothing to read. It is killed
/// when it has not ended after `deadline`. Processes that it leaves behind are not waited for.
/// Throws Error when this process has no descriptors left.
ProbeResult run_probe(const std::vector<std::string>& command, std::chrono::milliseconds deadline);

}  // namespace lockstep::launch
