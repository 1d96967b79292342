#include "lockstep/memory/thread_blocks.h"

#include <algorithm>

namespace lockstep::memory {

std::size_t ThreadBlocks::capacity(std::size_t size_class) {
  return std::min(kBlocksPerClass, kBytesPerClass / bytes_of_size_class(size_class));
}

Block* ThreadBlocks::take(std::size_t size_class) {
  follow_pool();
  if (size_class >= kClasses) return pool_.take(size_class);
  FreeList& list = lists_[size_class];
  if (list.count() == 0) {
    pool_.take(size_class, (capacity(size_class) + 1) / 2, list);
    counters_.keep(std::int64_t(list.count() * bytes_of_size_class(size_class)));
  }
  Block* const block = list.pop();
  if (block != nullptr) counters_.keep(-std::int64_t(block->bytes()));
  return block;
}

void ThreadBlocks::put(Block* block) {
  follow_pool();
  const std::size_t size_class = block->size_class;
  FreeList one;
  if (size_class >= kClasses) {
    one.push(block);
    pool_.put(one, 1);
    return;
  }
  FreeList& list = lists_[size_class];
  list.push(block);
  counters_.keep(std::int64_t(block->bytes()));
  if (list.count() <= capacity(size_class)) return;
  const std::size_t half = list.count() / 2;
  counters_.keep(-std::int64_t(half * block->bytes()));
  pool_.put(list, half);
}

void ThreadBlocks::hand_over() {
  for (FreeList& list : lists_) pool_.put(list, list.count());
  counters_.keep(-counters_.kept());
}

// Whoever emptied the pool meant all threads' blocks.
void ThreadBlocks::follow_pool() {
  const std::uint64_t now = pool_.generation();
  if (now == generation_) return;
  generation_ = now;
  for (FreeList& list : lists_) pool_.discard(list);
  counters_.keep(-counters_.kept());
}

}  // namespace lockstep::memory
