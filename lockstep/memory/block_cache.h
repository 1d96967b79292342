#pragma once

// Freed memory, kept for the next request of its size: a training step that has run before finds every block it needs
// without a system call and without a page fault.
//
// Each thread keeps a few small blocks of its own and shares the rest through a pool behind a lock, half a list at a
// time; large blocks always come from the pool. What one thread frees another may get. A thread that ends hands over
// what it has. A forked child has all of the pool and its own thread's blocks.
//
// One per process. All functions may be called by any thread at any time.

#include <cstddef>

#include "lockstep/memory/cache_stats.h"

namespace lockstep::memory::block_cache {

/// At least `bytes` (1 or more), aligned to kAlignment, undefined content. When there is no memory everything kept is
/// given back and tried again; then nullptr.
void* allocate(std::size_t bytes);

/// Takes back what allocate() gave.
void free(void* memory);

/// How many bytes the block that allocate() gave holds, at least what was asked for.
std::size_t bytes_of(void* memory);

/// Gives all kept blocks back to the system: the pool's and this thread's now, another thread's when it next
/// allocates or frees.
void empty();

/// The most that the pool keeps, in bytes; at first there is no limit. What exceeds it goes back to the system,
/// beginning with the sizes that were longest out of use. Each thread's own blocks (a few MiB) come on top.
void set_limit(std::size_t bytes);
std::size_t limit();

CacheStats stats();

}  // namespace lockstep::memory::block_cache
