#include "lockstep/memory/block_cache.h"

#include <pthread.h>

#include <utility>

#include "lockstep/memory/blocks.h"
#include "lockstep/memory/pool.h"
#include "lockstep/memory/thread_blocks.h"

namespace lockstep::memory::block_cache {
namespace {

Pool* new_pool();

// Never destroyed: blocks are freed until the last instruction of the process.
Pool& pool() {
  static Pool* const one = new_pool();
  return *one;
}

Pool* new_pool() {
  pthread_atfork([] { pool().lock(); }, [] { pool().unlock(); }, [] { pool().unlock(); });
  return new Pool;
}

// Plain values outlive every destructor of a thread, and those free memory too.
thread_local ThreadBlocks* mine = nullptr;
thread_local bool ended = false;

struct AtThreadEnd {
  ~AtThreadEnd() {
    ended = true;
    ThreadBlocks* const blocks = std::exchange(mine, nullptr);
    blocks->hand_over();
    pool().leave(blocks);
    delete blocks;
  }
};

// nullptr once the thread is about to end.
ThreadBlocks* blocks_of_this_thread() {
  if (mine == nullptr && !ended) {
    mine = new ThreadBlocks(pool());
    pool().join(mine);
    static thread_local AtThreadEnd at_end;
  }
  return mine;
}

Block* fresh(std::size_t size_class) {
  if (Block* const block = new_block(size_class)) return block;
  empty();
  return new_block(size_class);
}

}  // namespace

void* allocate(std::size_t bytes) {
  if (bytes > kLargestRequest) return nullptr;
  const std::size_t size_class = size_class_of(bytes);
  ThreadBlocks* const blocks = blocks_of_this_thread();
  Block* block = blocks ? blocks->take(size_class) : pool().take(size_class);
  const bool was_kept = block != nullptr;
  if (!was_kept) block = fresh(size_class);
  if (block == nullptr) return nullptr;
  if (blocks) {
    blocks->counters().handed_out(block->bytes(), was_kept);
  } else {
    Counters one;
    one.handed_out(block->bytes(), was_kept);
    pool().count_for_ended(one);
  }
  allow_access(block, bytes);
  return block->memory();
}

void free(void* memory) {
  Block* const block = Block::of(memory);
  allow_access(block, 0);
  if (ThreadBlocks* const blocks = blocks_of_this_thread()) {
    blocks->counters().taken_back(block->bytes());
    blocks->put(block);
    return;
  }
  Counters one;
  one.taken_back(block->bytes());
  pool().count_for_ended(one);
  FreeList list;
  list.push(block);
  pool().put(list, 1);
}

std::size_t bytes_of(void* memory) { return Block::of(memory)->bytes(); }

void empty() {
  if (ThreadBlocks* const blocks = blocks_of_this_thread()) blocks->hand_over();
  pool().empty();
}

void set_limit(std::size_t bytes) { pool().set_limit(bytes); }
std::size_t limit() { return pool().limit(); }
CacheStats stats() { return pool().stats(); }

}  // namespace lockstep::memory::block_cache
