#include "lockstep/comm/shm/shared_tensors.h"

#include <gtest/gtest.h>

#include <utility>

namespace lockstep::comm {
namespace {

TEST(SharedTensors, KnowOnlyWhatIsInOneWholePartOfTheRank) {
  constexpr std::size_t kStride = 4096;
  base::Segment segment = base::Segment::create(3);
  const std::size_t offset = segment.grow(base::Area::tensors, 3 * kStride);
  base::Mapping mapping = segment.map(offset, 3 * kStride, base::Access::read_write);
  SharedTensors tensors(1);
  const at::Tensor tensor =
      tensors.adopt({.id = 7, .mapping = std::move(mapping), .stride = kStride}, {1024}, at::kFloat);
  const auto* begin = static_cast<const std::byte*>(tensor.const_data_ptr());
  EXPECT_EQ(tensors.find(begin, kStride).region, 7u);
  EXPECT_EQ(tensors.find(begin + 64, 8).region, 7u);
  EXPECT_EQ(tensors.find(begin + 64, 8).offset, 64u);
  EXPECT_EQ(tensors.find(begin - 8, 16).region, 0u);
  EXPECT_EQ(tensors.find(begin + kStride - 8, 16).region, 0u);
  EXPECT_EQ(tensors.find(begin + kStride, 16).region, 0u) << "right behind it, where memory of others may be";
}

}  // namespace
}  // namespace lockstep::comm
