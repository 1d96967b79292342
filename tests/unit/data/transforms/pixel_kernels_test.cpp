#include "lockstep/data/transforms/pixel_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/random.h"

namespace lockstep::data {
namespace {

std::vector<std::uint8_t> by_formula(const Blend& blend, std::size_t count) {
  std::vector<std::uint8_t> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t sum = std::int64_t(1) << (kWeightBits - 1);
    for (int tap = 0; tap < blend.taps; ++tap) {
      sum += std::int64_t(blend.weights[tap]) * blend.rows[std::size_t(tap * blend.stride) + i];
    }
    out[i] = std::uint8_t(std::clamp<std::int64_t>(sum >> kWeightBits, 0, 255));
  }
  return out;
}

class EveryBuild : public ::testing::TestWithParam<const PixelKernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()->supported()) GTEST_SKIP() << "this machine has no " << GetParam()->name;
  }
};

TEST_P(EveryBuild, BlendIsTheRoundedSumForEveryCount) {
  base::RandomStream random(1, 2, 3);
  std::vector<std::uint8_t> rows(9 * 200);
  for (std::uint8_t& sample : rows) sample = std::uint8_t(random.next());
  for (int taps = 0; taps <= 9; ++taps) {
    std::vector<std::int32_t> weights(std::size_t(taps) + 1);
    for (int tap = 0; tap < taps; ++tap) {
      // Sums from about −0.5 to 1.5: some results are cut off at either end.
      weights[std::size_t(tap)] = std::int32_t(random.between(-0.5f, 1.5f) * (1 << kWeightBits)) / taps;
    }
    for (std::size_t count = 1; count <= 130; ++count) {
      const Blend blend{weights.data(), taps, rows.data(), 200};
      std::vector<std::uint8_t> out(count + 1, 77);
      GetParam()->blend(blend, out.data(), count);
      EXPECT_EQ(out.back(), 77) << "written behind the end";
      out.pop_back();
      ASSERT_EQ(out, by_formula(blend, count)) << count << " samples, " << taps << " taps";
    }
  }
}

// Each channel has numbers of its own; widths with and without a rest; one picture large enough to be streamed.
TEST_P(EveryBuild, NormalizeIsTheTwoQuotientsForEveryWidth) {
  if (GetParam()->normalize == nullptr) {
    EXPECT_STREQ(GetParam()->name, "scalar");
    return;
  }
  const std::array<float, 3> mean = {0.485f, 0.4822f, 0.1307f}, std = {0.229f, 0.2435f, 0.3081f};
  std::array<Standard, 3> standards;
  for (std::size_t c = 0; c < 3; ++c) standards[c] = {mean[c], Inverse::of(std[c])};
  base::RandomStream random(4, 5, 6);
  for (int width = kNormalizeWidth; width < 400; width += width < 70 ? 1 : 77) {
    for (const int channels : {1, 3}) {
      for (const bool mirrored : {false, true}) {
        const int height = width == 224 ? 128 : 3;
        Image image(height, width, channels);
        for (std::size_t i = 0; i < image.bytes(); ++i) image.row(0)[i] = std::uint8_t(random.next());
        const std::size_t count = image.bytes();
        const std::unique_ptr<float, decltype(&std::free)> out(
            static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) / 64 + 2) * 64)), &std::free);
        out.get()[count] = 77;
        GetParam()->normalize({image.view(), mirrored, standards.data()}, out.get());
        EXPECT_EQ(out.get()[count], 77) << "written behind the end";
        for (std::size_t i = 0; i < count; ++i) {
          const int x = int(i) % width, y = int(i) / width % height, c = int(i) / width / height;
          const std::uint8_t pixel = image.row(y)[(mirrored ? width - 1 - x : x) * channels + c];
          ASSERT_EQ(out.get()[i], (float(pixel) / 255.0f - mean[std::size_t(c)]) / std[std::size_t(c)])
              << width << " wide, channel " << c << " of " << channels << ", column " << x;
        }
      }
    }
  }
}

// Boxes on all sides of pictures wider, narrower and as wide as a group; the formula for each number.
TEST_P(EveryBuild, NormalizeFramedFillsWhatIsBeyondThePicture) {
  if (GetParam()->normalize_framed == nullptr) {
    EXPECT_STREQ(GetParam()->name, "scalar");
    return;
  }
  const std::array<float, 3> mean = {0.485f, 0.4822f, 0.1307f}, std = {0.229f, 0.2435f, 0.3081f};
  std::array<Standard, 3> standards;
  for (std::size_t c = 0; c < 3; ++c) standards[c] = {mean[c], Inverse::of(std[c])};
  const std::array<std::uint8_t, 3> fill = {9, 0, 255};
  base::RandomStream random(7, 8, 9);
  for (int trial = 0; trial < 2000; ++trial) {
    const int channels = trial % 2 == 0 ? 1 : 3, height = 1 + int(random.below(6)), width = 1 + int(random.below(40));
    Image image(height, width, channels);
    for (std::size_t i = 0; i < image.bytes(); ++i) image.row(0)[i] = std::uint8_t(random.next());
    const CropBox box{int(random.below(16)) - 8, int(random.below(100)) - 50,
                      Size{1 + int(random.below(6)), kNormalizeWidth + int(random.below(40))}};
    const bool mirrored = random.below(2) == 1;
    const std::size_t plane = std::size_t(box.size.height) * std::size_t(box.size.width);
    std::vector<float> out(plane * std::size_t(channels) + 1, 77);
    GetParam()->normalize_framed({image.view(), mirrored, standards.data()}, {box, fill}, out.data());
    ASSERT_EQ(out.back(), 77) << "written behind the end";
    for (std::size_t i = 0; i + 1 < out.size(); ++i) {
      const std::size_t c = i / plane;
      const int y = int(i % plane) / box.size.width + box.top, column = int(i % plane) % box.size.width;
      const int x = box.left + (mirrored ? box.size.width - 1 - column : column);
      const bool inside = y >= 0 && y < height && x >= 0 && x < width;
      const std::uint8_t pixel = inside ? image.row(y)[x * channels + int(c)] : fill[c];
      ASSERT_EQ(out[i], (float(pixel) / 255.0f - mean[c]) / std[c]) << "trial " << trial << ", number " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PixelKernels, EveryBuild, ::testing::ValuesIn(pixel_kernel_builds()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(PixelKernels, TheChosenBuildRunsHere) { EXPECT_TRUE(pixel_kernels().supported()); }

}  // namespace
}  // namespace lockstep::data
