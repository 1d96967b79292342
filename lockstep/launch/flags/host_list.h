#pragma once

// Hosts as users and scripts write them down. All pure.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// Hosts of one list, at most.
inline constexpr int kMaxHosts = 4096;

struct HostSlots {
  std::string name;          ///< a name, or an address without brackets
  std::optional<int> slots;  ///< workers that it may have; absent: not said

  bool operator==(const HostSlots&) const = default;
};

/// The content of a file; nothing when it cannot be read.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

/// "h1:4,h2,[::1]:2", or, where `text` has a '/', the file of that path with a host in each line: "h1:4", or "h1
/// slots=4" as in the host files of Open MPI and Horovod; '#' begins a comment. Throws UsageError, which begins with
/// `flag` and names the file and its line, for words that are no host, slots that are no number from 1 to 512, a host
/// that is there twice, no host at all.
std::vector<HostSlots> parse_hosts(const std::string& flag, const std::string& text, const ReadFile& read);

/// What a discovery script has printed, as Horovod reads it: a host in each line, "h1:4" or "h1", which has `slots`. A
/// host may be gone the next time, and none at all is no error: the job waits. Throws UsageError as parse_hosts(), with
/// `script` and the line.
std::vector<HostSlots> parse_discovered_hosts(const std::string& script, const std::string& output,
                                              std::optional<int> slots);

}  // namespace lockstep::launch
