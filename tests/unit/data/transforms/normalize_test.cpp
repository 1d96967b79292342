#include "lockstep/data/transforms/normalize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "tests/support/image_files.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::picture;
using testing::usage_error;

const NormalizeOptions kImageNet = {.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}};

template <class T>
std::vector<T> written(const Normalize& normalize, const Picture& picture) {
  const std::size_t count = normalize.slot(nullptr, picture.size(), picture.channels()).bytes() / sizeof(T);
  std::vector<T> values(count + 1, T(77));
  normalize.write(picture, normalize.slot(values.data(), picture.size(), picture.channels()));
  EXPECT_EQ(values.back(), T(77)) << "written behind the end";
  values.pop_back();
  return values;
}

float expected(std::uint8_t pixel, int channel) {
  return (float(pixel) / 255.0f - float(kImageNet.mean[std::size_t(channel)])) /
         float(kImageNet.std[std::size_t(channel)]);
}

TEST(NormalizeTransform, DefaultIsToTensor) {
  const Image image = picture(3, 5);
  const std::vector<float> values = written<float>(Normalize(), Picture::borrowed(image.view()));
  for (int c = 0; c < 3; ++c) {
    for (int i = 0; i < 15; ++i) EXPECT_EQ(values[std::size_t(c * 15 + i)], float(image.row(0)[3 * i + c]) / 255.0f);
  }
}

TEST(NormalizeTransform, WritesCropsAndMirrorImagesInBothLayouts) {
  const Image image = picture(9, 11);
  Picture seen = Picture::borrowed(image.view());
  seen.crop(2, 1, {5, 7});
  seen.mirror();
  NormalizeOptions options = kImageNet;
  const std::vector<float> planes = written<float>(Normalize(options), seen);
  options.layout = PixelLayout::channels_last;
  const std::vector<float> last = written<float>(Normalize(options), seen);
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < 5; ++y) {
      for (int x = 0; x < 7; ++x) {
        const float value = expected(image.row(2 + y)[3 * (1 + 6 - x) + c], c);
        EXPECT_EQ(planes[std::size_t((c * 5 + y) * 7 + x)], value);
        EXPECT_EQ(last[std::size_t((y * 7 + x) * 3 + c)], value);
      }
    }
  }
}

// As wide as the kernels of vector instructions need: rows that follow each other, and others.
TEST(NormalizeTransform, WritesWidePicturesWholeCutAndMirrored) {
  for (const int channels : {1, 3})
    for (const int width : {16, 28, 33})
      for (const int cut : {0, 5})
        for (const bool mirrored : {false, true}) {
          const Image image = picture(7, width + cut, channels);
          Picture seen = Picture::borrowed(image.view());
          if (cut > 0) seen.crop(1, cut - 1, {5, width});
          if (mirrored) seen.mirror();
          const auto [height, _] = seen.size();
          const std::vector<float> values = written<float>(Normalize(kImageNet), seen);
          const int top = cut > 0 ? 1 : 0, left = cut > 0 ? cut - 1 : 0;
          for (int c = 0; c < channels; ++c)
            for (int y = 0; y < height; ++y)
              for (int x = 0; x < width; ++x) {
                const int from = left + (mirrored ? width - 1 - x : x);
                ASSERT_EQ(values[std::size_t((c * height + y) * width + x)],
                          expected(image.row(top + y)[channels * from + c], c))
                    << width << (mirrored ? " mirrored" : "") << " cut " << cut << ": " << c << ", " << y << ", " << x;
              }
        }
}

// By arithmetic instead of bits: bfloat16 keeps 8 significant bits.
TEST(NormalizeTransform, BfloatIsTheNearest) {
  NormalizeOptions options = kImageNet;
  options.type = PixelType::bfloat16;
  Image image(16, 16, 3);
  for (int i = 0; i < 768; ++i) image.row(0)[i] = std::uint8_t(i / 3);
  const std::vector<std::uint16_t> values = written<std::uint16_t>(Normalize(options), Picture::borrowed(image.view()));
  for (int c = 0; c < 3; ++c) {
    for (int pixel = 0; pixel < 256; ++pixel) {
      const std::uint16_t bits = values[std::size_t(c) * 256 + std::size_t(pixel)];
      const double exact = expected(std::uint8_t(pixel), c);
      const auto distance = [&](int step) {
        return std::abs(double(std::bit_cast<float>(std::uint32_t(bits + step) << 16)) - exact);
      };
      EXPECT_LE(distance(0), distance(1));
      EXPECT_LE(distance(0), distance(-1));
    }
  }
}

TEST(NormalizeTransform, PixelsStayWhatTheyAreWhereAsked) {
  const Image image = picture(9, 11);
  Picture seen = Picture::borrowed(image.view());
  seen.crop(2, 1, {5, 7});
  seen.mirror();
  NormalizeOptions options = kImageNet;
  options.type = PixelType::uint8;
  const std::vector<std::uint8_t> planes = written<std::uint8_t>(Normalize(options), seen);
  options.layout = PixelLayout::channels_last;
  const std::vector<std::uint8_t> last = written<std::uint8_t>(Normalize(options), seen);
  ASSERT_EQ(planes.size(), 105u);
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < 5; ++y) {
      for (int x = 0; x < 7; ++x) {
        const std::uint8_t pixel = image.row(2 + y)[3 * (1 + 6 - x) + c];
        EXPECT_EQ(planes[std::size_t((c * 5 + y) * 7 + x)], pixel);
        EXPECT_EQ(last[std::size_t((y * 7 + x) * 3 + c)], pixel);
        EXPECT_EQ(Normalize(options).number(c, pixel), expected(pixel, c));
      }
    }
  }
}

TEST(NormalizeTransform, GreyTakesTheFirstNumbers) {
  const Image image = picture(4, 4, 1);
  const Normalize normalize({.mean = {0.1307}, .std = {0.3081}});
  EXPECT_EQ(normalize.slot(nullptr, {4, 4}, 1).bytes(), 64u);
  const std::vector<float> values = written<float>(normalize, Picture::borrowed(image.view()));
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(values[i], (float(image.row(0)[i]) / 255.0f - 0.1307f) / 0.3081f);
  }
}

TEST(Slot, SetsOneNumberInEveryLayoutAndType) {
  for (const bool last : {false, true}) {
    const PixelLayout layout = last ? PixelLayout::channels_last : PixelLayout::planes;
    std::vector<float> floats(24);
    Slot{floats.data(), {2, 4}, 3, layout}.set(2, 1, 3, 1.5f);
    std::vector<std::uint16_t> halves(24);
    const Slot slot{halves.data(), {2, 4}, 3, layout, PixelType::bfloat16};
    EXPECT_EQ(slot.bytes(), 48u);
    slot.set(1, 0, 2, 1.5f);
    std::vector<std::uint8_t> bytes(24);
    const Slot whole{bytes.data(), {2, 4}, 3, layout, PixelType::uint8};
    EXPECT_EQ(whole.bytes(), 24u);
    whole.set(1, 0, 2, 200.7f);
    EXPECT_EQ(bytes[last ? 7 : 10], 200);
    for (std::size_t i = 0; i < 24; ++i) {
      EXPECT_EQ(floats[i], i == 23 ? 1.5f : 0) << "the last of both layouts";
      EXPECT_EQ(halves[i], i == (last ? 7u : 10u) ? 0x3fc0 : 0);
    }
  }
}

TEST(NormalizeTransform, RefusesWrongNumbers) {
  EXPECT_EQ(usage_error([] { Normalize({.mean = {1, 2}}); }), "Normalize: 2 numbers for the mean, 1 or 3 expected");
  EXPECT_EQ(usage_error([] { Normalize({.std = {}}); }), "Normalize: 0 numbers for the std, 1 or 3 expected");
  EXPECT_EQ(usage_error([] {
              Normalize({.std = {1, 0, 1}});
            }),
            "Normalize: a std of 0.000000, another number expected");
}

}  // namespace
}  // namespace lockstep::data
