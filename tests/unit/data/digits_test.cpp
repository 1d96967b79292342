#include "lockstep/data/digits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

// FNV-1a, 64 bits, over the pixels, then the labels as bytes.
std::uint64_t fingerprint(const MemoryPictures& set) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const std::uint8_t pixel : set.content().pixels) add(pixel);
  for (const std::int64_t label : set.content().labels) add(std::uint8_t(label));
  return hash;
}

// The set is part of what users compare: change these numbers only with a new name for it.
TEST(Digits, AreTheSameBytesOnEveryMachine) {
  EXPECT_EQ(fingerprint(make_digits(Split::train)), 0xcdd6f80cca6472a6u);
  EXPECT_EQ(fingerprint(make_digits(Split::test)), 0xd55c80cb01aeee0eu);
}

TEST(Digits, AreBalancedAndShuffled) {
  const MemoryPictures set = make_digits(Split::test);
  EXPECT_EQ(set.size(), 10000);
  EXPECT_EQ(set.content().size, (Size{28, 28}));
  EXPECT_EQ(set.content().channels, 1);
  ASSERT_EQ(set.classes().size(), 10u);
  const auto& labels = set.content().labels;
  for (std::int64_t digit = 0; digit < 10; ++digit) {
    EXPECT_EQ(std::count(labels.begin(), labels.end(), digit), 1000);
    EXPECT_GT(std::count(labels.begin(), labels.begin() + 500, digit), 25);
  }
}

TEST(Digits, AFewAreTheFirstOfAll) {
  const MemoryPictures few = make_digits(Split::train, 3, 100);
  const MemoryPictures more = make_digits(Split::train, 3, 200);
  const auto begins_with = [](const auto& longer, const auto& start) {
    return std::equal(start.begin(), start.end(), longer.begin());
  };
  EXPECT_TRUE(begins_with(more.content().pixels, few.content().pixels));
  EXPECT_TRUE(begins_with(more.content().labels, few.content().labels));
  EXPECT_EQ(make_digits(Split::train, 3, 0).size(), 0);
}

TEST(Digits, SeedAndSplitMakeOtherPictures) {
  const std::uint64_t train = fingerprint(make_digits(Split::train, 0, 100));
  EXPECT_NE(fingerprint(make_digits(Split::train, 1, 100)), train);
  EXPECT_NE(fingerprint(make_digits(Split::test, 0, 100)), train);
}

TEST(Digits, EveryPictureHasInkAndBackground) {
  const MemoryPictures set = make_digits(Split::train, 0, 2000);
  for (auto first = set.content().pixels.begin(); first != set.content().pixels.end(); first += 784) {
    EXPECT_GE(*std::max_element(first, first + 784), 100);
    EXPECT_LT(std::accumulate(first, first + 784, 0), 150 * 784);
  }
}

TEST(Digits, RefusesMoreThanThereAre) {
  EXPECT_EQ(testing::usage_error([] { make_digits(Split::test, 0, 10001); }),
            "digits: 10001 samples asked for, the set has 10000");
}

}  // namespace
}  // namespace lockstep::data
