#include "lockstep/data/picture_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using testing::pixels_of;
using testing::usage_error;

MemoryPictures::Content two() {
  return {.size = {1, 2}, .channels = 1, .pixels = {1, 2, 3, 4}, .labels = {1, 0}, .classes = {"cat", "dog"}};
}

TEST(MemoryPictures, GivesItsSamplesWithoutCopying) {
  const MemoryPictures set(two());
  EXPECT_EQ(set.size(), 2);
  EXPECT_THAT(set.classes(), ElementsAre("cat", "dog"));
  Sample sample = set.get(1);
  EXPECT_EQ(sample.label, 0);
  EXPECT_THAT(pixels_of(copy_of(sample.picture.pixels())), ElementsAre(3, 4));
  EXPECT_EQ(sample.picture.pixels().pixels, set.get(1).picture.pixels().pixels);
}

TEST(MemoryPictures, RefusesWhatDoesNotFit) {
  const MemoryPictures set(two());
  EXPECT_EQ(usage_error([&] { set.get(2); }), "sample 2 asked for, the set has 2");
  EXPECT_EQ(usage_error([&] { set.get(-1); }), "sample -1 asked for, the set has 2");
  MemoryPictures::Content content = two();
  content.pixels.pop_back();
  EXPECT_EQ(usage_error([&] { MemoryPictures{content}; }), "3 bytes of pixels for 2 labels, 4 expected");
  content = two();
  content.labels[1] = 2;
  EXPECT_EQ(usage_error([&] { MemoryPictures{content}; }), "label 2 of sample 1, there are 2 classes");
  content = two();
  content.classes[1] = "cat";
  EXPECT_EQ(usage_error([&] { MemoryPictures{content}; }), "pictures: 'cat' is the name of two classes, 0 and 1");
}

TEST(MemoryPictures, ExpectWhatTheyDoNotHaveInSilence) {
  const MemoryPictures set(two());
  for (const std::int64_t index : {-1, 0, 1, 2}) set.expect(index);
  EXPECT_EQ(set.get(1).label, 0);
}

TEST(MemoryPictures, TheFingerprintIsOfLabelsShapeAndClassesNotOfPixels) {
  const auto print = [](MemoryPictures::Content content) { return MemoryPictures(std::move(content)).fingerprint(); };
  const MemoryPictures::Content content{
      .size = {1, 2}, .channels = 1, .pixels = {1, 2, 3, 4}, .labels = {0, 1}, .classes = {"a", "b"}};
  MemoryPictures::Content other = content;
  other.pixels[0] = 9;
  EXPECT_EQ(print(other), print(content));
  other.labels = {1, 0};
  EXPECT_NE(print(other).entries, print(content).entries);
  other = content;
  other.classes = {"a", "c"};
  EXPECT_NE(print(other).classes, print(content).classes);
  other = content;
  other.size = {2, 1};
  EXPECT_NE(print(other).entries, print(content).entries);
  EXPECT_EQ(print(content).samples, 2);
}

}  // namespace
}  // namespace lockstep::data
