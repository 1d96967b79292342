#include "lockstep/data/transforms/blur.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using namespace testing;

TEST(GaussianKernel, IsABellOfSumOne) {
  const std::vector<float> kernel = gaussian_kernel(5, 1.5);
  EXPECT_NEAR(std::accumulate(kernel.begin(), kernel.end(), 0.0), 1, 1e-6);
  EXPECT_EQ(kernel[0], kernel[4]);
  EXPECT_EQ(kernel[1], kernel[3]);
  EXPECT_NEAR(kernel[1] / kernel[2], std::exp(-0.5 / 2.25), 1e-6);
  EXPECT_NEAR(kernel[0] / kernel[2], std::exp(-0.5 * 4 / 2.25), 1e-6);
  EXPECT_THAT(gaussian_kernel(1, 0.1), ElementsAre(1));
}

// With weights 1/4, 1/2, 1/4 by hand: beyond the edge stands the second pixel, not the edge again.
TEST(Blurred, MirrorsAtTheEdge) {
  const FloatImage line{{1, 4}, 1, {0, 8, 16, 40}};
  const std::vector<float> weights = {0.25f, 0.5f, 0.25f}, one = {1};
  EXPECT_THAT(blurred(line, weights, one).values, ElementsAre(4, 8, 20, 28));
  const FloatImage column{{4, 1}, 1, {0, 8, 16, 40}};
  EXPECT_THAT(blurred(column, one, weights).values, ElementsAre(4, 8, 20, 28));
  const FloatImage two_channels{{1, 2}, 2, {0, 100, 8, 200}};
  EXPECT_THAT(blurred(two_channels, weights, one).values, ElementsAre(4, 150, 4, 150));
}

TEST(GaussianBlurFunction, KeepsWhatIsPlainAndSmoothsTheRest) {
  Image plain(9, 11, 3);
  std::fill_n(plain.row(0), plain.bytes(), std::uint8_t(200));
  EXPECT_THAT(pixels_of(gaussian_blur(plain.view(), {5, 3}, {1.5, 0.7})), Each(200));
  const Image image = picture(20, 30);
  const auto roughness = [](const Image& of) {
    int sum = 0;
    for (int y = 0; y < 20; ++y) {
      for (int x = 3; x < 90; ++x) sum += std::abs(of.row(y)[x] - of.row(y)[x - 3]);
    }
    return sum;
  };
  EXPECT_LT(roughness(gaussian_blur(image.view(), {9, 9}, {3, 3})), roughness(image));
  EXPECT_TRUE(same_pixels(gaussian_blur(image.view(), {1, 1}, {3, 3}), image));
  EXPECT_EQ(gaussian_blur(image.view(), {31, 61}, {3, 3}).size(), image.size()) << "a kernel beyond the picture";
}

TEST(GaussianBlurTransform, DrawsItsSigma) {
  const Image image = picture(16, 20);
  std::set<std::vector<int>> results;
  for (std::uint64_t index = 0; index < 20; ++index) {
    base::RandomStream random(1, 2, index), same = random;
    Picture one = Picture::borrowed(image.view());
    GaussianBlur({5, 9}, {0.5, 2}).apply(one, random);
    const double sigma = same.between(0.5f, 2);
    EXPECT_TRUE(same_pixels(one, gaussian_blur(image.view(), {5, 9}, {sigma, sigma})));
    results.insert(pixels_of(one));
  }
  EXPECT_GT(results.size(), 15u);
}

TEST(GaussianBlurTransform, RefusesWhatIsNoKernel) {
  EXPECT_EQ(usage_error([] { GaussianBlur(4); }), "GaussianBlur: kernel_size 4, an odd number above 0 expected");
  EXPECT_EQ(usage_error([] { GaussianBlur({3, -1}); }), "GaussianBlur: kernel_size -1, an odd number above 0 expected");
  EXPECT_EQ(usage_error([] {
              GaussianBlur(3, {0, 1});
            }),
            "GaussianBlur: sigma from 0.000000 to 1.000000, 0 < low <= high expected");
  usage_error([] { gaussian_kernel(3, 0); });
}

}  // namespace
}  // namespace lockstep::data
