#include "lockstep/memory/caching_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "lockstep/base/control_group.h"
#include "lockstep/base/error.h"
#include "lockstep/memory/block_cache.h"

namespace lockstep::memory {
namespace {

void report(void* memory, std::int64_t bytes) {
  if (!c10::memoryProfilingEnabled()) return;
  const CacheStats now = block_cache::stats();
  c10::reportMemoryUsageToProfiler(memory, bytes, std::size_t(now.bytes_in_use),
                                   std::size_t(now.bytes_in_use + now.bytes_kept), c10::Device(c10::DeviceType::CPU));
}

void free_memory(void* memory) {
  if (memory == nullptr) return;
  report(memory, -std::int64_t(block_cache::bytes_of(memory)));
  block_cache::free(memory);
}

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &free_memory, cpu};
    void* const memory = block_cache::allocate(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr, "no memory for a tensor of ", bytes, " bytes");
    report(memory, std::int64_t(block_cache::bytes_of(memory)));
    return {memory, memory, &free_memory, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return data.get() == data.get_context(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

// Never destroyed: tensors of static storage are freed last.
CachingAllocator& allocator() {
  static auto* const one = new CachingAllocator;
  return *one;
}

std::size_t memory_of_this_process() {
  std::size_t bytes = std::size_t(sysconf(_SC_PHYS_PAGES)) * std::size_t(sysconf(_SC_PAGESIZE));
  for (const base::MemoryGroup& group : base::limited_memory_groups())
    bytes = std::min<std::size_t>(bytes, group.limit);
  return bytes;
}

std::atomic<int> local_ranks = 1;
std::atomic<bool> shares_memory = false;  ///< the limit is the default one

void set_default_limit() { block_cache::set_limit(default_max_kept(memory_of_this_process(), local_ranks)); }

}  // namespace

bool asks_for_cache(std::string_view value) {
  if (value == "caching" || value.empty()) return true;
  if (value == "system") return false;
  throw UsageError("LOCKSTEP_ALLOCATOR is \"" + std::string(value) + "\"; caching and system are possible");
}

std::size_t default_max_kept(std::size_t memory, int processes) {
  return memory / 2 / std::size_t(std::max(processes, 1));
}

void use_caching_allocator(const CachingOptions& options) {
  const char* const wish = std::getenv("LOCKSTEP_ALLOCATOR");
  if (!asks_for_cache(wish ? wish : "")) return;
  shares_memory = options.max_kept_bytes == 0;
  if (shares_memory)
    set_default_limit();
  else
    block_cache::set_limit(options.max_kept_bytes);
  c10::SetCPUAllocator(&allocator(), /*priority=*/1);
}

void set_local_ranks(int ranks) {
  local_ranks = ranks;
  if (shares_memory) set_default_limit();
}

std::size_t max_kept_bytes() { return block_cache::limit(); }

bool uses_caching_allocator() { return c10::GetCPUAllocator() == &allocator(); }

void empty_cache() { block_cache::empty(); }

CacheStats memory_stats() { return block_cache::stats(); }

}  // namespace lockstep::memory
