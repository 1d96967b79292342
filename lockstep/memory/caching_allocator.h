#pragma once

// Keeps the memory that CPU tensors free, for the tensors of the next step: what torch.cuda does for devices. A step
// that has run before then makes no page faults for its tensors; large ones lie in huge pages where the kernel has
// them.
//
//   int main() {
//     lockstep::memory::use_caching_allocator();   // first: before tensors are made
//     ...
//
// The price is memory: what is kept is not the system's (max_kept_bytes, empty_cache()).

#include <cstddef>
#include <string_view>

#include "lockstep/memory/cache_stats.h"

namespace lockstep::memory {

struct CachingOptions {
  /// The most that is kept for reuse, in bytes. 0: half of the memory that this process's control groups and the
  /// machine allow, from lockstep::init() on shared out among the ranks of the node.
  std::size_t max_kept_bytes = 0;
};

/// Makes all CPU tensors from now on use the cache. Tensors that are there keep their memory and free it as before.
/// A second call changes the options. The environment's LOCKSTEP_ALLOCATOR has the last word: with "system" nothing is
/// installed, "caching" is the same as not set; another value is a UsageError.
/// Not while other threads make tensors: libtorch's list of allocators has no lock.
void use_caching_allocator(const CachingOptions& options = {});

/// How many processes of the job share this machine's memory: the default limit is this one's part. lockstep::init()
/// says it; 1 before.
void set_local_ranks(int ranks);

/// The most that is kept now, in bytes.
std::size_t max_kept_bytes();

/// Whether CPU tensors made now would use it.
bool uses_caching_allocator();

/// Gives all memory that is kept back to the system; tensors are not touched. Any thread. What another thread keeps of
/// its own (a few MiB) goes when it next makes or frees a tensor.
void empty_cache();

/// Totals since the beginning, of all threads. Any thread.
CacheStats memory_stats();

// The rules, pure.

/// Whether a value of LOCKSTEP_ALLOCATOR asks for the cache. Throws UsageError.
bool asks_for_cache(std::string_view value);

/// CachingOptions::max_kept_bytes' default for one of `processes` processes on a machine with `memory` bytes.
std::size_t default_max_kept(std::size_t memory, int processes);

}  // namespace lockstep::memory
