#include "lockstep/data/transforms/transform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/geometry.h"
#include "tests/support/image_files.h"
#include "tests/support/pixels.h"

namespace lockstep::data {
namespace {

using namespace testing;

TEST(TransformStream, IsAFunctionOfSeedEpochSampleAndPosition) {
  EXPECT_EQ(transform_stream({1, 2, 3}, 4).next(), transform_stream({1, 2, 3}, 4).next());
  std::set<std::uint32_t> first_draws;
  for (std::uint64_t seed : {0ull, 1ull, 1ull << 40}) {
    for (std::uint64_t epoch : {0ull, 1ull, 1ull << 33}) {
      for (std::uint64_t index : {0ull, 1ull, 1ull << 35}) {
        for (std::uint32_t position : {0u, 1u})
          first_draws.insert(transform_stream({seed, epoch, index}, position).next());
      }
    }
  }
  EXPECT_EQ(first_draws.size(), 3u * 3 * 3 * 2) << "two streams begin alike";
}

// A change of these numbers changes every augmented training run: it must be meant.
TEST(TransformStream, StaysWhatItIs) {
  base::RandomStream random = transform_stream({.seed = 42, .epoch = 7, .index = 1234}, 2);
  EXPECT_EQ(random.next(), 2769311558u);
  EXPECT_EQ(random.next(), 4152240784u);
}

// Takes a number of draws that depends on what it draws.
class Greedy : public Transform {
  void apply(Picture&, base::RandomStream& random) const override {
    for (std::uint32_t n = random.below(20); n > 0; --n) random.next();
  }
};

TEST(Compose, GivesEachTransformItsOwnStream) {
  const RandomCrop crop(8);
  const Compose transforms = Compose().then(Greedy()).then(crop);
  for (std::uint64_t index = 0; index < 20; ++index) {
    Picture composed(picture(32, 32)), alone(picture(32, 32));
    transforms.apply(composed, {.seed = 5, .index = index});
    base::RandomStream random = transform_stream({.seed = 5, .index = index}, 1);
    crop.apply(alone, random);
    EXPECT_TRUE(same_pixels(composed, copy_of(alone.pixels())));
  }
}

TEST(Compose, GrowsUnderANameToo) {
  Compose named;
  named.then(RandomCrop(8)).then(RandomHorizontalFlip());
  named.then(AnyTransform(RandomVerticalFlip()));
  const Compose chained = Compose().then(RandomCrop(8)).then(RandomHorizontalFlip()).then(RandomVerticalFlip());
  const Compose copy = named;
  EXPECT_EQ(named.size(), 3u);
  for (std::uint64_t index = 0; index < 20; ++index) {
    Picture a(picture(32, 32)), b(picture(32, 32)), c(picture(32, 32));
    named.apply(a, {.seed = 5, .index = index});
    chained.apply(b, {.seed = 5, .index = index});
    copy.apply(c, {.seed = 5, .index = index});
    EXPECT_EQ(pixels_of(a), pixels_of(b));
    EXPECT_EQ(pixels_of(a), pixels_of(c));
  }
}

TEST(Compose, ASampleLooksTheSameInAnyOrderAndDifferentInTheNextEpoch) {
  const Compose transforms = Compose().then(RandomResizedCrop(9)).then(RandomHorizontalFlip());
  const auto augmented = [&](std::uint64_t epoch, std::uint64_t index) {
    Picture one(picture(40, 40));
    transforms.apply(one, {.seed = 5, .epoch = epoch, .index = index});
    return pixels_of(one);
  };
  std::vector<std::vector<int>> forward, backward;
  for (std::uint64_t index = 0; index < 10; ++index) forward.push_back(augmented(0, index));
  for (std::uint64_t index = 10; index-- > 0;) backward.insert(backward.begin(), augmented(0, index));
  EXPECT_EQ(forward, backward);
  EXPECT_NE(augmented(1, 3), forward[3]);
}

TEST(Happens, AsOftenAsItShould) {
  int count = 0;
  for (std::uint64_t index = 0; index < 10000; ++index) {
    base::RandomStream random = transform_stream({.index = index}, 0);
    count += happens(0.3, random);
  }
  EXPECT_NEAR(count, 3000, 5 * 46);
  base::RandomStream random(1, 2, 3);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(happens(0, random));
    EXPECT_TRUE(happens(1, random));
  }
}

}  // namespace
}  // namespace lockstep::data
