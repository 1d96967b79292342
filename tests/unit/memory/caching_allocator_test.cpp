#include "lockstep/memory/caching_allocator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::memory {
namespace {

constexpr std::int64_t kNumbers = 1 << 20;

class CachingAllocator : public testing::Test {
 protected:
  CachingAllocator() {
    unsetenv("LOCKSTEP_ALLOCATOR");
    use_caching_allocator();
    empty_cache();
  }
};

TEST_F(CachingAllocator, ATensorGetsTheMemoryOfTheOneBefore) {
  ASSERT_TRUE(uses_caching_allocator());
  at::Tensor tensor = at::ones({kNumbers});
  const void* const memory = tensor.data_ptr();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
  tensor.reset();
  tensor = at::empty({kNumbers});
  EXPECT_EQ(tensor.data_ptr(), memory);
  EXPECT_GE(memory_stats().bytes_in_use, std::int64_t(kNumbers * sizeof(float)));
}

TEST_F(CachingAllocator, AnotherThreadMayFree) {
  const CacheStats before = memory_stats();
  at::Tensor tensor = at::ones({kNumbers});
  std::thread([&] { tensor.reset(); }).join();
  EXPECT_EQ(memory_stats().bytes_in_use, before.bytes_in_use);
  EXPECT_GE(memory_stats().bytes_kept, std::int64_t(kNumbers * sizeof(float)));
  empty_cache();
  EXPECT_EQ(memory_stats().bytes_kept, 0);
}

TEST_F(CachingAllocator, EmptyTensorsAndRawMemory) {
  EXPECT_EQ(at::empty({0}).numel(), 0);
  void* const memory = c10::GetCPUAllocator()->raw_allocate(100);
  ASSERT_NE(memory, nullptr);
  c10::GetCPUAllocator()->raw_deallocate(memory);
  c10::GetCPUAllocator()->raw_deallocate(nullptr);
}

TEST_F(CachingAllocator, MemoryCanBeCloned) {
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  const c10::DataPtr data = allocator.allocate(8);
  EXPECT_TRUE(allocator.is_simple_data_ptr(data));
  static_cast<char*>(data.get())[7] = 'x';
  EXPECT_EQ(static_cast<char*>(allocator.clone(data.get(), 8).get())[7], 'x');
}

TEST_F(CachingAllocator, TooMuchIsOutOfMemory) { EXPECT_THROW(at::empty({std::int64_t{1} << 50}), c10::Error); }

TEST_F(CachingAllocator, TheLimitIsAnOption) {
  use_caching_allocator({.max_kept_bytes = 1 << 20});
  at::ones({kNumbers});
  EXPECT_LE(memory_stats().bytes_kept, 1 << 20);
}

TEST_F(CachingAllocator, TheDefaultLimitIsSharedAmongTheRanksOfTheNode) {
  setenv("LOCAL_WORLD_SIZE", "7", 1);  // mpirun and srun do not set it, and it is not asked
  use_caching_allocator();
  const std::size_t alone = max_kept_bytes();
  set_local_ranks(4);
  EXPECT_EQ(max_kept_bytes(), alone / 4);
  use_caching_allocator();
  EXPECT_EQ(max_kept_bytes(), alone / 4);
  use_caching_allocator({.max_kept_bytes = 1 << 20});
  set_local_ranks(2);
  EXPECT_EQ(max_kept_bytes(), std::size_t(1) << 20);
  set_local_ranks(1);
  unsetenv("LOCAL_WORLD_SIZE");
}

// Each in a process of its own, for an allocator is installed for good.

int system_stays() {
  setenv("LOCKSTEP_ALLOCATOR", "system", 1);
  use_caching_allocator();
  at::ones({kNumbers});
  return !uses_caching_allocator() && memory_stats().misses == 0 ? 0 : 1;
}

int old_tensors_go_where_they_came_from() {
  at::Tensor old = at::ones({kNumbers});
  use_caching_allocator();
  const at::Tensor fresh = at::ones({kNumbers});
  old.reset();
  const CacheStats stats = memory_stats();
  return stats.misses == 1 && stats.bytes_kept == 0 ? 0 : 1;
}

TEST(CachingAllocatorAtStart, TheEnvironmentHasTheLastWord) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(system_stays()), testing::ExitedWithCode(0), "");
}

TEST(CachingAllocatorAtStart, TensorsMadeBeforeAreFreedAsBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(old_tensors_go_where_they_came_from()), testing::ExitedWithCode(0), "");
}

TEST(CachingAllocatorRules, ValuesOfTheEnvironment) {
  EXPECT_TRUE(asks_for_cache(""));
  EXPECT_TRUE(asks_for_cache("caching"));
  EXPECT_FALSE(asks_for_cache("system"));
  EXPECT_THROW(asks_for_cache("tcmalloc"), UsageError);
}

TEST(CachingAllocatorRules, HalfOfTheMemoryIsShared) {
  EXPECT_EQ(default_max_kept(64, 1), 32u);
  EXPECT_EQ(default_max_kept(64, 4), 8u);
  EXPECT_EQ(default_max_kept(64, 0), 32u);
}

}  // namespace
}  // namespace lockstep::memory
