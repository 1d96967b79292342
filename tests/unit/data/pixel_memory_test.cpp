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

TEST(PixelMemory, AThreadKeepsFewBytesWhateverItUsed) {
  std::thread([] {
    EXPECT_EQ(kept_pixel_bytes(), 0u);
    for (const std::size_t megabytes : {3, 100, 5, 7, 40, 2, 6, 5, 4, 300, 1, 9}) {
      { const PixelMemory memory = pixel_memory(megabytes << 20); }
      EXPECT_LE(kept_pixel_bytes(), kKeptPixelBytes) << megabytes;
      EXPECT_EQ(kept_pixel_bytes() > 0, true) << "large ones do not push out the others";
    }
    { const PixelMemory first = pixel_memory(9 << 20), second = pixel_memory(9 << 20); }
    EXPECT_EQ(kept_pixel_bytes(), std::size_t(9) << 20) << "the last one used stays";
  }).join();
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
