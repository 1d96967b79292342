#pragma once

// The key of a job's agents: 32 random bytes in a file that only its owner reads. It leaves the agent's memory in no
// way: not to workers, nor into messages, logs and reports.

#include <array>
#include <string>

namespace lockstep::launch {

using Secret = std::array<unsigned char, 32>;

/// A new one as it stands in a file: 64 hexadecimal digits and a line's end. Throws Error.
std::string new_secret_text();

/// Reads one. Throws UsageError: no such file, not a regular one, another user's, readable by others, not 64 digits.
Secret read_secret(const std::string& path);

}  // namespace lockstep::launch
