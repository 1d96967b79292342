#include "lockstep/memory/block_cache.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "lockstep/memory/blocks.h"

namespace lockstep::memory {
namespace {

using block_cache::allocate;

constexpr std::size_t kSmall = 1000;
constexpr std::size_t kLarge = 3 << 20;

class BlockCache : public testing::Test {
 protected:
  BlockCache() {
    block_cache::empty();
    before_ = block_cache::stats();
  }
  ~BlockCache() override {
    block_cache::set_limit(SIZE_MAX);
    block_cache::empty();
  }

  // What happened since the test began.
  CacheStats since() const {
    const CacheStats now = block_cache::stats();
    return {.bytes_in_use = now.bytes_in_use - before_.bytes_in_use,
            .bytes_kept = now.bytes_kept,
            .hits = now.hits - before_.hits,
            .misses = now.misses - before_.misses,
            .releases = now.releases - before_.releases};
  }

 private:
  CacheStats before_;
};

// The pages of a block that a write to them would fault in. Faults themselves are no measure under ThreadSanitizer,
// whose shadow memory has faults of its own.
std::size_t absent_pages(void* memory, std::size_t bytes) {
  const auto page = std::size_t(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t begin = address / page * page;
  std::vector<unsigned char> present((address + bytes - begin + page - 1) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), address + bytes - begin, present.data()), 0);
  return std::size_t(std::ranges::count_if(present, [](unsigned char flags) { return (flags & 1) == 0; }));
}

TEST_F(BlockCache, AFreedBlockServesTheNextRequestOfItsSize) {
  for (const std::size_t bytes : {kSmall, kLarge}) {
    void* const first = allocate(bytes);
    block_cache::free(first);
    EXPECT_EQ(allocate(bytes - 1), first);
    block_cache::free(first);
  }
  EXPECT_EQ(since().misses, 2u);
  EXPECT_EQ(since().hits, 2u);
  EXPECT_EQ(since().bytes_in_use, 0);
  EXPECT_EQ(since().releases, 0u);
}

TEST_F(BlockCache, MemoryIsAlignedWritableAndNobodyElses) {
  std::vector<std::pair<unsigned char*, std::size_t>> all;
  for (std::size_t bytes = 1; bytes < (8 << 20); bytes = bytes * 3 / 2 + 1) {
    auto* const memory = static_cast<unsigned char*>(allocate(bytes));
    ASSERT_NE(memory, nullptr);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(memory) % kAlignment, 0u);
    std::memset(memory, int(all.size()), bytes);
    all.emplace_back(memory, bytes);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto [memory, bytes] = all[i];
    EXPECT_TRUE(std::ranges::all_of(std::span(memory, bytes), [&](unsigned char c) { return c == i % 256; }));
    block_cache::free(memory);
  }
}

TEST_F(BlockCache, CountsBytes) {
  void* const memory = allocate(kLarge);
  EXPECT_EQ(since().bytes_in_use, std::int64_t(kLarge));
  EXPECT_EQ(block_cache::bytes_of(memory), kLarge);
  block_cache::free(memory);
  EXPECT_EQ(since().bytes_in_use, 0);
  EXPECT_EQ(since().bytes_kept, std::int64_t(kLarge));
}

TEST_F(BlockCache, EmptyGivesAllBack) {
  for (const std::size_t bytes : {kSmall, kLarge}) block_cache::free(allocate(bytes));
  block_cache::empty();
  EXPECT_EQ(since().bytes_kept, 0);
  EXPECT_EQ(since().releases, 2u);
  block_cache::free(allocate(kLarge));
  EXPECT_EQ(since().misses, 3u);
}

TEST_F(BlockCache, TheLimitHolds) {
  block_cache::set_limit(2 * kLarge);
  EXPECT_EQ(block_cache::limit(), 2 * kLarge);
  std::vector<void*> all;
  for (int i = 0; i < 4; ++i) all.push_back(allocate(kLarge));
  for (void* memory : all) block_cache::free(memory);
  EXPECT_EQ(since().bytes_kept, std::int64_t(2 * kLarge));
  EXPECT_EQ(since().releases, 2u);
}

TEST_F(BlockCache, WhatNoMachineHasIsRefused) {
  EXPECT_EQ(allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(allocate(kLargestRequest), nullptr);
  void* const memory = allocate(kSmall);
  EXPECT_NE(memory, nullptr);
  block_cache::free(memory);
}

TEST_F(BlockCache, ASteadyStateMakesNoPageFaults) {
  const auto step = [] {
    std::size_t absent = 0;
    std::vector<char*> all;
    for (std::size_t bytes = 64; bytes <= (16 << 20); bytes *= 2) {
      all.push_back(static_cast<char*>(allocate(bytes)));
      absent += absent_pages(all.back(), bytes);
      for (std::size_t i = 0; i < bytes; i += 4096) all.back()[i] = 1;
      all.back()[bytes - 1] = 1;
    }
    for (char* memory : all) block_cache::free(memory);
    return absent;
  };
  EXPECT_GT(step(), 6000u) << "the first step has new memory";
  const CacheStats first = since();
  std::size_t absent = 0;
  for (int i = 0; i < 20; ++i) absent += step();
  EXPECT_LT(absent, 100u) << "a few: a kernel may swap";
  EXPECT_EQ(since().misses, first.misses) << "memory asked of the system";
  EXPECT_EQ(since().releases, first.releases) << "memory given back to it";
}

TEST_F(BlockCache, AThreadThatEndsHandsOverWhatItKept) {
  void* memory = nullptr;
  std::thread([&] {
    memory = allocate(kSmall);
    block_cache::free(memory);
  }).join();
  EXPECT_EQ(allocate(kSmall), memory);
  block_cache::free(memory);
  EXPECT_EQ(since().misses, 1u);
  EXPECT_EQ(since().bytes_in_use, 0);
}

// A tensor in thread-local storage is freed when its thread has handed over already.
TEST_F(BlockCache, FreeAtTheVeryEndOfAThread) {
  struct Late {
    void* memory = nullptr;
    ~Late() {
      block_cache::free(memory);
      block_cache::free(allocate(kSmall));
    }
  };
  std::thread([] {
    static thread_local Late late;  // before the cache's own: destroyed after it
    late.memory = allocate(kSmall);
  }).join();
  EXPECT_EQ(since().bytes_in_use, 0);
  EXPECT_EQ(since().hits + since().misses, 2u);
  EXPECT_GT(since().bytes_kept, 0);
  block_cache::empty();
  EXPECT_EQ(since().bytes_kept, 0) << "what came last is kept where nobody finds it";
}

// A loader's batches are freed by the thread that trains.
TEST_F(BlockCache, AThreadThatOnlyFreesLeavesMuchToOthers) {
  constexpr std::size_t kBlocks = 1000;  // a thread keeps 64 of a size
  std::vector<void*> all;
  for (std::size_t i = 0; i < kBlocks; ++i) all.push_back(allocate(kSmall));
  for (void* const memory : all) block_cache::free(memory);
  std::thread([] { block_cache::free(allocate(kSmall)); }).join();
  EXPECT_EQ(since().misses, kBlocks);
}

// A block begins where a huge page may.
TEST_F(BlockCache, LargeBlocksCanHaveHugePages) {
  std::vector<void*> all;
  for (int i = 0; i < 5; ++i) all.push_back(allocate(kLarge));
  for (void* const memory : all) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(Block::of(memory)) % (2 << 20), 0u);
    block_cache::free(memory);
  }
}

TEST_F(BlockCache, EmptyReachesOtherThreadsAtTheirNextCall) {
  std::mutex mutex;
  std::condition_variable changed;
  int stage = 0;
  const auto wait_for = [&](int wanted) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return stage >= wanted; }));
  };
  const auto go_to = [&](int reached) {
    const std::lock_guard lock(mutex);
    stage = reached;
    changed.notify_all();
  };
  std::thread other([&] {
    block_cache::free(allocate(kSmall));
    go_to(1);
    wait_for(2);
    block_cache::free(allocate(10 * kSmall));
    go_to(3);
    wait_for(4);
  });
  wait_for(1);
  block_cache::empty();
  EXPECT_GT(since().bytes_kept, 0) << "still the other thread's";
  go_to(2);
  wait_for(3);
  EXPECT_EQ(since().releases, 1u);
  go_to(4);
  other.join();
}

// Two threads make and two others free, as a loader and a training thread do.
TEST_F(BlockCache, BlocksMayWanderBetweenThreads) {
  constexpr int kBlocks = 4000;
  struct Item {
    unsigned char* memory;
    std::size_t bytes;
    unsigned char mark;
  };
  std::mutex mutex;
  std::deque<Item> way;
  const auto make = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < kBlocks; ++i) {
      const std::size_t bytes = 1 + random() % (i % 100 == 0 ? kLarge : 20'000);
      Item item{static_cast<unsigned char*>(allocate(bytes)), bytes, static_cast<unsigned char>(i)};
      item.memory[0] = item.memory[bytes - 1] = item.mark;
      const std::lock_guard lock(mutex);
      way.push_back(item);
    }
  };
  const auto take = [&] {
    for (int i = 0; i < kBlocks;) {
      Item item{};
      {
        const std::lock_guard lock(mutex);
        if (!way.empty()) {
          item = way.front();
          way.pop_front();
        }
      }
      if (item.memory == nullptr) {
        std::this_thread::yield();
        continue;
      }
      ASSERT_EQ(item.memory[0], item.mark);
      ASSERT_EQ(item.memory[item.bytes - 1], item.mark);
      block_cache::free(item.memory);
      ++i;
    }
  };
  {
    std::vector<std::thread> threads;
    threads.emplace_back(make, 1);
    threads.emplace_back(make, 2);
    threads.emplace_back(take);
    threads.emplace_back(take);
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(since().bytes_in_use, 0);
  EXPECT_EQ(since().hits + since().misses, 2u * kBlocks);
}

TEST_F(BlockCache, AForkedChildGoesOn) {
  void* const memory = allocate(kSmall);
  const pid_t child = fork();
  if (child == 0) {
    block_cache::free(memory);
    const bool kept = allocate(kSmall) == memory;
    block_cache::empty();
    void* const large = allocate(kLarge);
    _exit(kept && large != nullptr ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  block_cache::free(memory);
}

}  // namespace
}  // namespace lockstep::memory
