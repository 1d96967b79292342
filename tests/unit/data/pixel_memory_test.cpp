#include "lockstep/data/pixel_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace lockstep::data {
namespace {

TEST(PixelMemory, IsUsedAgainByTheThread) {
  const std::uint8_t* first = nullptr;
  {
    const PixelMemory memory = pixel_memory(100'000);
    std::memset(memory.get(), 1, 100'000);
    first = memory.get();
  }
  const PixelMemory again = pixel_memory(99'000);
  EXPECT_EQ(again.get(), first) << "of the same class of sizes";
  const PixelMemory more = pixel_memory(100'000);
  EXPECT_NE(more.get(), first);
  std::memset(more.get(), 2, 100'000);
}

TEST(PixelMemory, NeverHasLessThanWasAskedFor) {
  for (std::size_t bytes = 30'000; bytes < 300'000; bytes += 997) {
    { const PixelMemory other = pixel_memory(bytes + 500); }
    const PixelMemory memory = pixel_memory(bytes);
    std::memset(memory.get(), 1, bytes);  // AddressSanitizer looks on
  }
}

TEST(PixelMemory, GoesFromThreadToThreadAndOutlivesThem) {
  std::vector<PixelMemory> kept;
  std::thread([&] {
    for (int i = 0; i < 20; ++i) kept.push_back(pixel_memory(50'000));
    const PixelMemory own = pixel_memory(50'000);
  }).join();
  for (const PixelMemory& memory : kept) std::memset(memory.get(), 1, 50'000);
  kept.clear();
}

}  // namespace
}  // namespace lockstep::data
