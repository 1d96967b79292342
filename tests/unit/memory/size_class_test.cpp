#include "lockstep/memory/size_class.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::memory {
namespace {

// Every boundary: the last size of each class, the one before and the one after.
TEST(SizeClass, HoldsWhatItIsAskedForAndLittleMore) {
  for (std::size_t c = 0; c + 1 < kSizeClasses; ++c) {
    const std::size_t most = bytes_of_size_class(c);
    ASSERT_EQ(most % kAlignment, 0u);
    ASSERT_EQ(size_class_of(most), c);
    ASSERT_EQ(size_class_of(most + 1), c + 1);
    const std::size_t waste = bytes_of_size_class(c + 1) - (most + 1);
    ASSERT_LT(waste, std::max(kAlignment, (most + 1) / 8)) << "a request of " << most + 1 << " bytes";
  }
}

TEST(SizeClass, FirstAndLast) {
  EXPECT_EQ(size_class_of(1), 0u);
  EXPECT_EQ(size_class_of(kLargestRequest), kSizeClasses - 1);
}

TEST(SizeClass, PowersOfTwoWasteNothing) {
  for (std::size_t bytes = kAlignment; bytes <= kLargestRequest; bytes *= 2)
    ASSERT_EQ(bytes_of_size_class(size_class_of(bytes)), bytes);
}

}  // namespace
}  // namespace lockstep::memory
