#include "lockstep/data/transforms/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using namespace testing;

constexpr WarpOptions kMixed = {Interpolation::bilinear, {90, 90, 90}};
constexpr WarpOptions kPicked = {Interpolation::nearest, {90, 90, 90}};

// Every pixel from so many pixels to the right and below.
Displacement everywhere(Size size, double right, double down) {
  const auto count = std::size_t(size.height) * std::size_t(size.width);
  return {{size, 1, std::vector<float>(count, float(2 * right / size.width))},
          {size, 1, std::vector<float>(count, float(2 * down / size.height))}};
}

TEST(ElasticTransformFunction, TakesPixelsFromWhereTheyAreDisplacedTo) {
  const Image image = ramp(2, 4);  // 1 2 3 4 / 5 6 7 8
  for (const WarpOptions& options : {kMixed, kPicked}) {
    EXPECT_TRUE(same_pixels(elastic_transform(image.view(), everywhere({2, 4}, 0, 0), options), image));
    EXPECT_THAT(pixels_of(elastic_transform(image.view(), everywhere({2, 4}, 1, 0), options)),
                ElementsAre(2, 3, 4, 90, 6, 7, 8, 90));
    EXPECT_THAT(pixels_of(elastic_transform(image.view(), everywhere({2, 4}, 0, -1), options)),
                ElementsAre(90, 90, 90, 90, 1, 2, 3, 4));
  }
}

// Half a pixel to the right: the last one is half outside, (100 / 2) / 2 + 90 / 2 = 70.
TEST(ElasticTransformFunction, CountsWhatIsOutsideTwiceAsTorchvision) {
  const Image image = row_of({20, 60, 100, 100}, 1);
  EXPECT_THAT(pixels_of(elastic_transform(image.view(), everywhere({1, 4}, 0.5, 0), kMixed)),
              ElementsAre(40, 80, 100, 70));
}

TEST(ElasticTransform, DisplacesSmoothly) {
  const ElasticTransform transform({.alpha = {40, 80}, .sigma = 4});
  base::RandomStream random(1, 2, 3);
  const Displacement chosen = transform.choose({40, 50}, random);
  const auto largest = [](const std::vector<float>& numbers) {
    return std::abs(*std::ranges::max_element(numbers, {}, [](float x) { return std::abs(x); }));
  };
  EXPECT_EQ(chosen.x.size, (Size{40, 50}));
  EXPECT_EQ(chosen.y.values.size(), 2000u);
  EXPECT_GT(largest(chosen.x.values), 0.01f);
  EXPECT_LT(largest(chosen.x.values), 0.5f * 40 / 50) << "blurred noise is smaller than 1";
  float step = 0;
  for (std::size_t i = 1; i < 50; ++i) step = std::max(step, std::abs(chosen.x.values[i] - chosen.x.values[i - 1]));
  EXPECT_LT(step, 0.5f * largest(chosen.x.values));
  EXPECT_NE(chosen.x.values, chosen.y.values);
}

TEST(ElasticTransform, AppliesWhatItChooses) {
  const Image image = picture(16, 20);
  const ElasticTransform transform({.sigma = 0, .warp = {Interpolation::nearest, {1, 2, 3}}});
  base::RandomStream random(1, 2, 3), same = random;
  Picture one = Picture::borrowed(image.view());
  transform.apply(one, random);
  const Displacement chosen = transform.choose({16, 20}, same);
  EXPECT_TRUE(same_pixels(one, elastic_transform(image.view(), chosen, {Interpolation::nearest, {1, 2, 3}})));
  Picture still = Picture::borrowed(image.view());
  ElasticTransform({.alpha = 0}).apply(still, random);
  EXPECT_TRUE(same_pixels(still, image));
}

TEST(ElasticTransform, RefusesWhatItCannotDo) {
  EXPECT_EQ(usage_error([] {
              ElasticTransform({.sigma = {1, 0}});
            }),
            "ElasticTransform: sigma 1.000000, 0.000000, both 0 or both above 0 and at most a million expected");
  EXPECT_EQ(usage_error([] { ElasticTransform({.warp = {Interpolation::bicubic}}); }),
            "ElasticTransform: bicubic interpolation, nearest or bilinear expected");
  EXPECT_EQ(usage_error([] { ElasticTransform({.warp = {Interpolation::lanczos}}); }),
            "ElasticTransform: an interpolation of resizing, nearest or bilinear expected");
  usage_error([] { ElasticTransform({.alpha = double(INFINITY)}); });
}

}  // namespace
}  // namespace lockstep::data
