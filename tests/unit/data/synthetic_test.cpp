#include "lockstep/data/synthetic.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::pixels_of;
using testing::usage_error;

std::vector<int> pixels(const SyntheticPictures& set, std::int64_t index) {
  return pixels_of(copy_of(set.get(index).picture.window()));
}

TEST(SyntheticPictures, HasTheShapeAskedFor) {
  const SyntheticPictures defaults;
  EXPECT_EQ(defaults.size(), 1000);
  EXPECT_EQ(defaults.classes().size(), 10u);
  EXPECT_EQ(defaults.get(999).picture.size(), (Size{224, 224}));
  const SyntheticPictures set({.size = 3, .image_size = {5, 7}, .channels = 1, .classes = 2});
  const Sample sample = set.get(2);
  EXPECT_EQ(sample.picture.size(), (Size{5, 7}));
  EXPECT_EQ(sample.picture.channels(), 1);
  EXPECT_EQ(set.classes(), (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(usage_error([&] { set.get(3); }), "sample 3 asked for, the set has 3");
}

TEST(SyntheticPictures, ASampleIsAFunctionOfSeedAndIndex) {
  const SyntheticPictures one({.size = 5, .image_size = {4, 4}, .seed = 1}), more({.image_size = {4, 4}, .seed = 1}),
      other({.image_size = {4, 4}, .seed = 2});
  EXPECT_EQ(pixels(one, 3), pixels(more, 3));
  EXPECT_EQ(one.get(3).label, more.get(3).label);
  EXPECT_NE(pixels(more, 3), pixels(more, 4));
  EXPECT_NE(pixels(more, 3), pixels(other, 3));
}

TEST(SyntheticPictures, PixelsAndLabelsAreSpreadEvenly) {
  const SyntheticPictures set({.size = 1000, .image_size = {16, 15}, .classes = 4, .seed = 7});
  std::vector<int> of_value(256), of_label(4);
  std::set<std::vector<int>> different;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    ++of_label[std::size_t(set.get(i).label)];
    const std::vector<int> picture = pixels(set, i);
    for (const int value : picture) ++of_value[std::size_t(value)];
    different.insert(picture);
  }
  EXPECT_EQ(different.size(), 1000u);
  for (const int count : of_label) EXPECT_NEAR(count, 250, 60);  // over four standard deviations
  for (const int count : of_value) EXPECT_NEAR(count, 2812, 260);
}

// The bytes are part of the contract: the same on every machine.
TEST(SyntheticPictures, TheBytesStayWhatTheyAre) {
  const SyntheticPictures set({.image_size = {1, 3}, .seed = 1});
  EXPECT_EQ(pixels(set, 0), (std::vector<int>{32, 40, 196, 183, 143, 163, 134, 127, 107}));
  EXPECT_EQ(set.get(0).label, 0);
  EXPECT_EQ(set.get(5).label, 5);
}

TEST(SyntheticPictures, RefusesWhatIsNoSet) {
  EXPECT_EQ(usage_error([] { SyntheticPictures({.size = 0}); }), "synthetic set: 0 samples, at least 1 expected");
  EXPECT_EQ(usage_error([] { SyntheticPictures({.channels = 2}); }), "synthetic set: 2 channels, 1 or 3 expected");
  usage_error([] { SyntheticPictures({.image_size = {0, 1}}); });
  usage_error([] { SyntheticPictures({.image_size = {1, 0}}); });
  usage_error([] { SyntheticPictures({.classes = 0}); });
}

}  // namespace
}  // namespace lockstep::data
