#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

namespace lockstep::support {

/// How often this thread made which system call (by its number) while `body` ran. A forked child watches by ptrace.
/// Nothing, and the reason printed, where the system does not allow that. `body` must not call getppid().
std::optional<std::map<long, int>> system_calls_of(const std::function<void()>& body);

/// "futex 3, madvise 1"; a number for calls that are rarely seen.
std::string to_string(const std::map<long, int>& calls);

}  // namespace lockstep::support
