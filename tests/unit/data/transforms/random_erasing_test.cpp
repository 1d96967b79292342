#include "lockstep/data/transforms/random_erasing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::usage_error;

constexpr Size kSize = {40, 50};

std::vector<float> erased(const RandomErasing& erasing, std::uint64_t index) {
  std::vector<float> numbers(3 * 40 * 50, -9);
  base::RandomStream random(1, 2, index);
  erasing.apply({numbers.data(), kSize, 3}, random);
  return numbers;
}

TEST(RandomErasing, WritesItsValuesIntoTheBoxItDraws) {
  const RandomErasing erasing({.p = 1, .value = {1, 2, 3}});
  for (std::uint64_t index = 0; index < 20; ++index) {
    base::RandomStream random(1, 2, index);
    ASSERT_TRUE(happens(1, random));
    const CropBox box = erasing.choose(kSize, random).value();
    const std::vector<float> numbers = erased(erasing, index);
    for (int i = 0; i < 3 * 40 * 50; ++i) {
      const int c = i / 2000, y = i % 2000 / 50, x = i % 50;
      const bool inside =
          y >= box.top && y < box.top + box.size.height && x >= box.left && x < box.left + box.size.width;
      ASSERT_EQ(numbers[std::size_t(i)], inside ? float(c + 1) : -9);
    }
  }
}

TEST(RandomErasing, HappensAsOftenAsAsked) {
  const auto count = [](double probability) {
    int happened = 0;
    for (std::uint64_t index = 0; index < 1000; ++index) {
      const std::vector<float> numbers = erased(RandomErasing({.p = probability}), index);
      happened += std::ranges::count(numbers, -9.0f) < std::ptrdiff_t(numbers.size());
    }
    return happened;
  };
  EXPECT_EQ(count(0), 0);
  EXPECT_EQ(count(1), 1000);
  EXPECT_NEAR(count(0.25), 250, 5 * 13.7);
}

TEST(RandomErasing, NoiseIsNormal) {
  std::vector<float> numbers(3 * 200 * 200);
  base::RandomStream random(1, 2, 3);
  RandomErasing({.value = {}}).erase({numbers.data(), {200, 200}, 3}, {0, 0, {200, 200}}, random);
  double sum = 0, squares = 0;
  int far = 0;
  for (const float x : numbers) {
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += double(x) * x;
    far += std::abs(x) > 1.959964f;
  }
  const double n = double(numbers.size());
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(far / n, 0.05, 5 * std::sqrt(0.05 * 0.95 / n));
}

TEST(RandomErasing, DrawsNothingWhereNothingFits) {
  base::RandomStream random(1, 2, 3);
  EXPECT_FALSE(RandomErasing({.scale = {1, 1}, .ratio = {1, 1}}).choose({10, 10}, random));
}

TEST(RandomErasing, RefusesWhatIsOutOfRange) {
  EXPECT_EQ(usage_error([] { RandomErasing({.p = 2}); }), "RandomErasing: p 2.000000, 0 to 1 expected");
  EXPECT_EQ(usage_error([] {
              RandomErasing({.scale = {0.5, 2}});
            }),
            "RandomErasing: scale from 0.500000 to 2.000000, 0 <= low <= high <= 1 expected");
  EXPECT_EQ(usage_error([] {
              RandomErasing({.ratio = {0, 1}});
            }),
            "RandomErasing: ratio from 0.000000 to 1.000000, 0 < low <= high expected");
  EXPECT_EQ(usage_error([] { RandomErasing({.value = {1, 2}}); }), "RandomErasing: 2 values, 0, 1 or 3 expected");
}

}  // namespace
}  // namespace lockstep::data
