#include "lockstep/data/transforms/augmix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "lockstep/data/transforms/gamma.h"
#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using namespace testing;

base::RandomStream stream_of(std::uint64_t index) { return transform_stream({.seed = 3, .index = index}, 0); }

// What torchvision makes of given draws is compared by tests/parity/augment_test.py.
TEST(AugMixTransform, IsTheSumOfTheSharesCutOffToWholeNumbers) {
  const Image original = picture(6, 7);
  const AugMixDraws draws{.balance = {0.25f, 0.75f}, .shares = {0.5f, 0.5f}, .chains = {{{AugmentOp::invert, 0}}, {}}};
  const Image mixed = augmixed(original.view(), draws, {});
  for (std::size_t i = 0; i < original.bytes(); ++i) {
    const float x = original.row(0)[i];
    ASSERT_EQ(mixed.row(0)[i], int(0.25f * x + 0.375f * (255 - x) + 0.375f * x)) << i;
  }
}

// So no sum of bytes needs more than a byte.
TEST(AugMixTransform, SharesAreOneTogether) {
  for (std::uint64_t index = 0; index < 50; ++index) {
    base::RandomStream random = stream_of(index);
    const AugMixDraws any = AugMix({.mixture_width = 7}).draw({1, 1}, random);
    float sum = any.balance[0];
    for (const float share : any.shares) sum += share * any.balance[1];
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

TEST(AugMixTransform, DrawsFromItsOperations) {
  std::set<AugmentOp> met;
  std::set<std::size_t> depths;
  for (std::uint64_t index = 0; index < 300; ++index) {
    base::RandomStream random = stream_of(index);
    const AugMixDraws draws = AugMix({.severity = 1, .all_ops = false}).draw({30, 30}, random);
    ASSERT_EQ(draws.chains.size(), 3u);
    ASSERT_EQ(draws.shares.size(), 3u);
    for (const auto& chain : draws.chains) {
      depths.insert(chain.size());
      for (const auto& [op, magnitude] : chain) {
        met.insert(op);
        // The weakest of the ten.
        ASSERT_EQ(std::abs(magnitude), op == AugmentOp::posterize ? 4 : op == AugmentOp::solarize ? 255 : 0);
      }
    }
  }
  EXPECT_EQ(depths, (std::set<std::size_t>{1, 2, 3}));
  const auto& expected = augmix_operations(false);
  EXPECT_EQ(met, std::set<AugmentOp>(expected.begin(), expected.end()));
  EXPECT_EQ(augmix_operations(true).size(), 13u);
  base::RandomStream random = stream_of(0);
  EXPECT_EQ(AugMix({.mixture_width = 1, .chain_depth = 5}).draw({30, 30}, random).chains.at(0).size(), 5u);
}

TEST(AugMixTransform, IsAFunctionOfTheSample) {
  std::set<std::vector<int>> results;
  const auto applied = [](std::uint64_t index) {
    Picture one(picture(16, 20));
    base::RandomStream random = stream_of(index);
    AugMix().apply(one, random);
    return pixels_of(one);
  };
  for (std::uint64_t index = 0; index < 50; ++index) {
    results.insert(applied(index));
    EXPECT_EQ(applied(index), applied(index));
  }
  EXPECT_EQ(results.size(), 50u);
}

TEST(AugMixTransform, RefusesWhatIsOutOfRange) {
  EXPECT_EQ(usage_error([] { AugMix({.severity = 11}); }), "AugMix: severity 11, 1 to 10 expected");
  EXPECT_EQ(usage_error([] { AugMix({.severity = 0}); }), "AugMix: severity 0, 1 to 10 expected");
  EXPECT_EQ(usage_error([] { AugMix({.mixture_width = 0}); }), "AugMix: 0 chains, at least 1 expected");
  EXPECT_EQ(usage_error([] { AugMix({.alpha = 0}); }), "AugMix: alpha 0.000000, a number above 0 expected");
  EXPECT_EQ(usage_error([] { AugMix({.alpha = std::nan("")}); }), "AugMix: alpha nan, a number above 0 expected");
}

// Where every Gamma is too small for a double, the shares are numbers still.
TEST(Dirichlet, SmallAlphasGiveNumbers) {
  for (std::uint64_t index = 0; index < 200; ++index) {
    base::RandomStream random = stream_of(index);
    float sum = 0;
    for (const float share : draw_dirichlet(1e-4, 3, random)) {
      ASSERT_GT(share, 0);
      sum += share;
    }
    ASSERT_NEAR(sum, 1, 1e-6);
  }
}

}  // namespace
}  // namespace lockstep::data
