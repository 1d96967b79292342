#include "lockstep/data/transforms/transpose.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::data {
namespace {

TEST(Transpose, StandsUpAndLiesDownAgainForEveryShape) {
  for (int rows = 1; rows <= kBlockRows; ++rows) {
    for (std::size_t count = 1; count <= 50; ++count) {
      const std::size_t stride = count + 3;
      std::vector<std::uint8_t> flat(stride * std::size_t(rows));
      for (std::size_t i = 0; i < flat.size(); ++i) flat[i] = std::uint8_t(i * 37 + i / 256);
      std::vector<std::uint8_t> block(count * std::size_t(rows), 9);
      stand_up(flat.data(), std::ptrdiff_t(stride), rows, count, block.data());
      for (std::size_t i = 0; i < count; ++i) {
        for (int r = 0; r < rows; ++r) {
          const std::uint8_t expected = flat[std::size_t(r) * stride + i];
          ASSERT_EQ(block[i * std::size_t(rows) + std::size_t(r)], expected) << rows << " rows of " << count;
        }
      }
      std::vector<std::uint8_t> back(flat.size(), 5);
      lay_down(block.data(), count, rows, back.data(), std::ptrdiff_t(stride));
      for (std::size_t i = 0; i < back.size(); ++i) {
        ASSERT_EQ(back[i], i % stride < count ? flat[i] : 5) << rows << " rows of " << count;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::data
