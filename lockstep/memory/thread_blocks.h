#pragma once

// The small blocks that one thread keeps to itself.

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/memory/blocks.h"
#include "lockstep/memory/counters.h"
#include "lockstep/memory/pool.h"

namespace lockstep::memory {

/// Used by its thread alone, but for counters().
class ThreadBlocks {
 public:
  explicit ThreadBlocks(Pool& pool) : pool_(pool), generation_(pool.generation()) {}

  /// A kept block, this thread's or else the pool's; nullptr: there is none.
  Block* take(std::size_t size_class);

  /// Keeps a block, here or in the pool.
  void put(Block* block);

  /// Hands all to the pool.
  void hand_over();

  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }

 private:
  // Blocks up to this size; of each size so many bytes, and no more than so many blocks.
  static constexpr std::size_t kLargest = 64 << 10;
  static constexpr std::size_t kBytesPerClass = 256 << 10;
  static constexpr std::size_t kBlocksPerClass = 64;
  static constexpr std::size_t kClasses = 64;  // one more than the class of kLargest

  static std::size_t capacity(std::size_t size_class);
  void follow_pool();

  Pool& pool_;
  std::uint64_t generation_;
  std::array<FreeList, kClasses> lists_;
  Counters counters_;
};

}  // namespace lockstep::memory
