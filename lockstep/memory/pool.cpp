#include "lockstep/memory/pool.h"

#include <algorithm>

#include "lockstep/memory/thread_blocks.h"

namespace lockstep::memory {

Block* Pool::take(std::size_t size_class) {
  const std::lock_guard lock(mutex_);
  Shelf& shelf = shelves_[size_class];
  shelf.used = ++uses_;
  Block* const block = shelf.blocks.pop();
  if (block != nullptr) kept_ -= block->bytes();
  return block;
}

void Pool::take(std::size_t size_class, std::size_t count, FreeList& list) {
  const std::lock_guard lock(mutex_);
  Shelf& shelf = shelves_[size_class];
  shelf.used = ++uses_;
  for (; count > 0 && shelf.blocks.count() > 0; --count) {
    list.push(shelf.blocks.pop());
    kept_ -= bytes_of_size_class(size_class);
  }
}

void Pool::put(FreeList& list, std::size_t count) {
  if (count == 0) return;
  FreeList too_many;
  {
    const std::lock_guard lock(mutex_);
    for (; count > 0; --count) {
      Block* const block = list.pop();
      Shelf& shelf = shelves_[block->size_class];
      shelf.used = ++uses_;
      shelf.blocks.push(block);
      kept_ += block->bytes();
    }
    if (kept_ > limit_) too_many = excess();
  }
  discard(too_many);
}

void Pool::empty() {
  FreeList all;
  {
    const std::lock_guard lock(mutex_);
    for (Shelf& shelf : shelves_) {
      while (Block* const block = shelf.blocks.pop()) all.push(block);
    }
    kept_ = 0;
    generation_.fetch_add(1, std::memory_order_relaxed);
  }
  discard(all);
}

void Pool::discard(FreeList& blocks) {
  releases_.fetch_add(blocks.count(), std::memory_order_relaxed);
  while (Block* const block = blocks.pop()) delete_block(block);
}

void Pool::set_limit(std::size_t bytes) {
  FreeList too_many;
  {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
    too_many = excess();
  }
  discard(too_many);
}

std::size_t Pool::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

// Under the lock. Rare: only when the sizes asked for change.
FreeList Pool::excess() {
  FreeList out;
  while (kept_ > limit_) {
    Shelf* oldest = nullptr;
    for (Shelf& shelf : shelves_) {
      if (shelf.blocks.count() > 0 && (oldest == nullptr || shelf.used < oldest->used)) oldest = &shelf;
    }
    while (kept_ > limit_ && oldest->blocks.count() > 0) {
      Block* const block = oldest->blocks.pop();
      kept_ -= block->bytes();
      out.push(block);
    }
  }
  return out;
}

void Pool::join(ThreadBlocks* blocks) {
  const std::lock_guard lock(mutex_);
  threads_.push_back(blocks);
}

void Pool::leave(ThreadBlocks* blocks) {
  const std::lock_guard lock(mutex_);
  ended_.add(blocks->counters());
  std::erase(threads_, blocks);
}

void Pool::count_for_ended(const Counters& more) {
  const std::lock_guard lock(mutex_);
  ended_.add(more);
}

CacheStats Pool::stats() const {
  const std::lock_guard lock(mutex_);
  Counters all;
  all.add(ended_);
  for (const ThreadBlocks* blocks : threads_) all.add(blocks->counters());
  return {.bytes_in_use = all.in_use(),
          .bytes_kept = all.kept() + std::int64_t(kept_),
          .hits = all.hits(),
          .misses = all.misses(),
          .releases = releases_.load(std::memory_order_relaxed)};
}

}  // namespace lockstep::memory
