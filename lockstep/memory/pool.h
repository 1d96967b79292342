#pragma once

// The blocks that all threads share, behind a lock. Nothing here waits for the kernel while it holds the lock.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "lockstep/memory/blocks.h"
#include "lockstep/memory/cache_stats.h"
#include "lockstep/memory/counters.h"

namespace lockstep::memory {

class ThreadBlocks;

class Pool {
 public:
  /// nullptr: none is kept.
  Block* take(std::size_t size_class);

  /// Up to `count` blocks of a class, put into `list`.
  void take(std::size_t size_class, std::size_t count, FreeList& list);

  /// Keeps the first `count` blocks of `list`, which are of one class. May give others back to the system.
  void put(FreeList& list, std::size_t count);

  /// Gives every block back to the system and counts up generation().
  void empty();

  /// How often the pool was emptied: a thread that sees another number than before empties its own lists.
  std::uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }

  /// Gives the blocks of a list back to the system.
  void discard(FreeList& blocks);

  /// The most that is kept here, bytes. What exceeds it goes back to the system, beginning with the sizes that were
  /// longest out of use.
  void set_limit(std::size_t bytes);
  std::size_t limit() const;

  /// A thread that comes and one that goes, whose blocks are in the pool by then.
  void join(ThreadBlocks* blocks);
  void leave(ThreadBlocks* blocks);

  /// For what a thread does after it has left.
  void count_for_ended(const Counters& more);

  CacheStats stats() const;

  /// For fork(): the child must find the lock free and the lists whole.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  struct Shelf {
    FreeList blocks;
    std::uint64_t used = 0;  ///< when it was last touched, in uses of the pool
  };

  FreeList excess();

  mutable std::mutex mutex_;
  std::array<Shelf, kSizeClasses> shelves_;
  std::uint64_t uses_ = 0;
  std::size_t kept_ = 0;  // bytes on the shelves
  std::size_t limit_ = SIZE_MAX;
  std::vector<ThreadBlocks*> threads_;
  Counters ended_;
  std::atomic<std::uint64_t> generation_ = 0;
  std::atomic<std::uint64_t> releases_ = 0;
};

}  // namespace lockstep::memory
