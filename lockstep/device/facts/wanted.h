#pragma once

// The device that somebody asks for, as text: the value of --device. Pure, thread-safe.

#include <optional>
#include <string_view>

namespace lockstep::device {

enum class WantedKind {
  cpu,
  cuda,      ///< "cuda": the GPU whose number is the local rank's; "cuda:N": that one
  automatic  ///< "auto": as "cuda" where a GPU can be used, else the CPU
};

struct Wanted {
  WantedKind kind = WantedKind::cpu;
  std::optional<int> index;  ///< the N of "cuda:N"
  bool operator==(const Wanted&) const = default;
};

/// "cpu", "cuda", "cuda:N" or "auto". UsageError for any other text.
Wanted parse_wanted(std::string_view text);

}  // namespace lockstep::device
