#include "lockstep/data/digits.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

// FNV-1a, 64 bits, over the pixels, then the labels as bytes.
std::uint64_t fingerprint(const ImageSet& set) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](const at::Tensor& bytes) {
    const std::uint8_t* byte = bytes.const_data_ptr<std::uint8_t>();
    for (std::int64_t i = 0; i < bytes.numel(); ++i) hash = (hash ^ byte[i]) * 0x100000001b3;
  };
  add(set.images);
  add(set.labels.to(torch::kByte));
  return hash;
}

// The set is part of what users compare: change these numbers only with a new name for it.
TEST(Digits, AreTheSameBytesOnEveryMachine) {
  EXPECT_EQ(fingerprint(make_digits(Split::train)), 0xcdd6f80cca6472a6u);
  EXPECT_EQ(fingerprint(make_digits(Split::test)), 0xd55c80cb01aeee0eu);
}

TEST(Digits, AreBalancedAndShuffled) {
  const ImageSet set = make_digits(Split::test);
  EXPECT_EQ(set.size(), 10000);
  EXPECT_EQ(set.images.sizes(), (std::vector<std::int64_t>{10000, 1, 28, 28}));
  EXPECT_EQ(set.classes, 10);
  EXPECT_TRUE(at::equal(torch::bincount(set.labels), torch::full({10}, 1000, torch::kLong)));
  EXPECT_TRUE(at::all(torch::bincount(set.labels.slice(0, 0, 500), {}, 10) > 25).item<bool>());
}

TEST(Digits, AFewAreTheFirstOfAll) {
  const ImageSet few = make_digits(Split::train, 3, 100);
  const ImageSet more = make_digits(Split::train, 3, 200);
  EXPECT_TRUE(at::equal(few.images, more.images.slice(0, 0, 100)));
  EXPECT_TRUE(at::equal(few.labels, more.labels.slice(0, 0, 100)));
  EXPECT_EQ(make_digits(Split::train, 3, 0).size(), 0);
}

TEST(Digits, SeedAndSplitMakeOtherPictures) {
  const std::uint64_t train = fingerprint(make_digits(Split::train, 0, 100));
  EXPECT_NE(fingerprint(make_digits(Split::train, 1, 100)), train);
  EXPECT_NE(fingerprint(make_digits(Split::test, 0, 100)), train);
}

TEST(Digits, EveryPictureHasInkAndBackground) {
  const ImageSet set = make_digits(Split::train, 0, 2000);
  const at::Tensor flat = set.images.view({2000, -1});
  EXPECT_GE(flat.amax(1).min().item<int>(), 100);
  EXPECT_LT(flat.to(torch::kFloat).mean(1).max().item<float>(), 150);
}

TEST(Digits, RefusesMoreThanThereAre) {
  EXPECT_EQ(testing::usage_error([] { make_digits(Split::test, 0, 10001); }),
            "digits: 10001 samples asked for, the set has 10000");
}

}  // namespace
}  // namespace lockstep::data
