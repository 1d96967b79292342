#pragma once

#include <cstdint>

namespace lockstep::memory {

/// Totals of all threads.
struct CacheStats {
  std::int64_t bytes_in_use = 0;  ///< of blocks that are handed out
  std::int64_t bytes_kept = 0;    ///< of blocks that wait for their next use
  std::uint64_t hits = 0;         ///< requests that a kept block served
  std::uint64_t misses = 0;       ///< requests that needed a new block
  std::uint64_t releases = 0;     ///< blocks given back to the system
};

}  // namespace lockstep::memory
