#include "lockstep/base/small_float.h"

#include <gtest/gtest.h>

namespace lockstep::base {
namespace {

TEST(SmallFloat, EveryHalfAndBfloat16ComesBack) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const double half = from_half(std::uint16_t(bits)), bfloat16 = from_bfloat16(std::uint16_t(bits));
    if (std::isnan(half))
      EXPECT_TRUE(std::isnan(from_half(to_half(half))));
    else
      EXPECT_EQ(to_half(half), bits);
    if (std::isnan(bfloat16))
      EXPECT_TRUE(std::isnan(from_bfloat16(to_bfloat16(bfloat16))));
    else
      EXPECT_EQ(to_bfloat16(bfloat16), bits);
  }
}

// Between two neighbours: nearest, and to the even one from the middle.
TEST(SmallFloat, RoundsOnceToTheNearest) {
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const double low = from_half(std::uint16_t(bits)), high = from_half(std::uint16_t(bits + 1));
    const double middle = (low + high) / 2;
    EXPECT_EQ(to_half(middle), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(to_half(std::nextafter(middle, low)), bits);
    EXPECT_EQ(to_half(std::nextafter(middle, high)), bits + 1);
    EXPECT_EQ(to_half(-std::nextafter(middle, high)), (bits + 1) | 0x8000);
  }
  for (int bits = 0; bits < 0x7f7f; ++bits) {
    const double low = from_bfloat16(std::uint16_t(bits)), high = from_bfloat16(std::uint16_t(bits + 1));
    const double middle = (low + high) / 2;
    EXPECT_EQ(to_bfloat16(middle), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(to_bfloat16(std::nextafter(middle, high)), bits + 1);
  }
}

TEST(SmallFloat, KnowsItsEnds) {
  EXPECT_EQ(from_half(0x3c00), 1);
  EXPECT_EQ(from_half(0x0001), std::ldexp(1, -24));
  EXPECT_EQ(from_bfloat16(0x3f80), 1);
  EXPECT_EQ(from_bfloat16(0x4049), 3.140625);
  EXPECT_EQ(to_half(65519.99), 0x7bff);
  EXPECT_EQ(to_half(65520), 0x7c00);
  EXPECT_EQ(to_half(-1e300), 0xfc00);
  EXPECT_EQ(to_half(1e-300), 0);
  EXPECT_EQ(to_bfloat16(-1e-300), 0x8000);
  EXPECT_EQ(to_half(std::numeric_limits<double>::infinity()), 0x7c00);
  EXPECT_EQ(to_half(std::numeric_limits<double>::denorm_min()), 0);
}

}  // namespace
}  // namespace lockstep::base
