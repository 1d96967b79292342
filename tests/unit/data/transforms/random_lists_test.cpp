#include "lockstep/data/transforms/random_lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "lockstep/data/transforms/geometry.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::SizeIs;
using namespace testing;

// Writes its digit behind those that are there: the picture's only pixel counts what was done, in order.
class Digit : public Transform {
 public:
  explicit Digit(int digit) : digit_(digit) {}
  void apply(Picture& picture, base::RandomStream&) const override {
    Image image = copy_of(picture.pixels());
    image.row(0)[0] = std::uint8_t(image.row(0)[0] * 6 + digit_);
    picture.replace(std::move(image));
  }

 private:
  int digit_;
};

// How often each result came.
std::map<int, int> results(const Transform& transform, std::uint64_t samples) {
  std::map<int, int> counts;
  for (std::uint64_t index = 0; index < samples; ++index) {
    base::RandomStream random(1, 2, index);
    Image black(1, 1, 1);
    black.row(0)[0] = 0;
    Picture one(std::move(black));
    transform.apply(one, random);
    ++counts[pixels_of(one).at(0)];
  }
  return counts;
}

TEST(RandomApply, AppliesAllOrNone) {
  std::map<int, int> counts = results(RandomApply({Digit(1), Digit(2)}, 0.25), 4000);
  EXPECT_THAT(counts, SizeIs(2));
  EXPECT_NEAR(counts[1 * 6 + 2], 1000, 5 * 28);
  counts = results(RandomApply({RandomApply({Digit(1)}, 0.5)}, 0.5), 4000);
  EXPECT_NEAR(counts[1], 1000, 5 * 28) << "one in another, not a copy of it";
  EXPECT_EQ(usage_error([] { RandomApply({}, 1.1); }), "RandomApply: p 1.100000, 0 to 1 expected");
}

TEST(RandomChoice, AppliesOne) {
  std::map<int, int> counts = results(RandomChoice({Digit(1), Digit(2), Digit(3)}), 3000);
  EXPECT_THAT(counts, SizeIs(3));
  for (const int digit : {1, 2, 3}) EXPECT_NEAR(counts[digit], 1000, 5 * 26);
  counts = results(RandomChoice({Digit(1), Digit(2), Digit(3)}, {1, 0, 3}), 4000);
  EXPECT_THAT(counts, SizeIs(2));
  EXPECT_NEAR(counts[1], 1000, 5 * 28);
  EXPECT_NEAR(counts[3], 3000, 5 * 28);
}

TEST(RandomChoice, RefusesWhatItCannotChooseFrom) {
  const std::vector<AnyTransform> none;
  const std::vector<AnyTransform> one = {Digit(1)};
  EXPECT_EQ(usage_error([&] { RandomChoice{none}; }), "RandomChoice: nothing to choose from");
  EXPECT_EQ(usage_error([&] { RandomChoice(one, {1, 2}); }), "RandomChoice: 2 weights for 1 transforms");
  for (const double weight : {0.0, -1.0, double(INFINITY)}) {
    EXPECT_EQ(usage_error([&] { RandomChoice(one, {weight}); }),
              "RandomChoice: weights that are finite, not negative and not all 0 expected");
  }
}

TEST(RandomOrder, AppliesAllInAnyOrder) {
  const std::map<int, int> counts = results(RandomOrder({Digit(1), Digit(2), Digit(3)}), 6000);
  EXPECT_THAT(counts, SizeIs(6));
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 5 * 29) << order;
}

}  // namespace
}  // namespace lockstep::data
