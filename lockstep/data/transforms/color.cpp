#include "lockstep/data/transforms/color.h"

#include <algorithm>

#include "lockstep/data/transforms/geometry.h"

namespace lockstep::data {
namespace {

// Pillow's, in float: what is between the two is cut off to an integer, what is beyond also to 0 … 255.
std::uint8_t blend(int plain, int value, float factor) {
  const float mixed = float(plain) + factor * float(value - plain);
  return std::uint8_t(std::clamp(mixed, 0.0f, 255.0f));
}

ValueTables blend_with(int plain, float factor) {
  ValueTables tables;
  for (int value = 0; value < 256; ++value) {
    for (auto& table : tables) table[std::size_t(value)] = blend(plain, value, factor);
  }
  return tables;
}

int mean_of_grey(const ImageView& image) {
  const Image grey = to_grey(image);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < grey.bytes(); ++i) sum += grey.row(0)[i];
  return int(double(sum) / double(grey.bytes()) + 0.5);  // NOLINT(bugprone-incorrect-roundings): as Pillow rounds
}

// 5 parts of a sample and 1 of each of its 8 neighbours, rounded; the edge stays.
Image smoothed(const ImageView& image) {
  Image out = copy_of(image);
  const int step = image.channels;
  for (int y = 1; y + 1 < image.height; ++y) {
    const std::uint8_t* rows[] = {image.row(y - 1), image.row(y), image.row(y + 1)};
    for (int i = step; i < (image.width - 1) * step; ++i) {
      int sum = 4 * rows[1][i];
      for (const std::uint8_t* row : rows) sum += row[i - step] + row[i] + row[i + step];
      out.row(y)[i] = std::uint8_t((2 * sum + 13) / 26);
    }
  }
  return out;
}

}  // namespace

Image map_values(const ImageView& image, const ValueTables& tables) {
  Image out(image.size(), image.channels);
  for (int y = 0; y < image.height; ++y) {
    const std::uint8_t* from = image.row(y);
    std::uint8_t* to = out.row(y);
    for (int x = 0; x < image.width; ++x) {
      for (int c = 0; c < image.channels; ++c) *to++ = tables[std::size_t(c)][*from++];
    }
  }
  return out;
}

Image adjust_brightness(const ImageView& image, double factor) {
  return map_values(image, blend_with(0, float(factor)));
}

Image adjust_contrast(const ImageView& image, double factor) {
  return map_values(image, blend_with(mean_of_grey(image), float(factor)));
}

Image adjust_saturation(const ImageView& image, double factor) {
  const Image grey = to_grey(image);
  Image out(image.size(), image.channels);
  for (int y = 0; y < image.height; ++y) {
    const std::uint8_t* from = image.row(y);
    std::uint8_t* to = out.row(y);
    for (int x = 0; x < image.width; ++x) {
      const int plain = grey.row(y)[x];
      for (int c = 0; c < image.channels; ++c) *to++ = blend(plain, *from++, float(factor));
    }
  }
  return out;
}

Image adjust_sharpness(const ImageView& image, double factor) {
  Image out = smoothed(image);
  for (int y = 0; y < image.height; ++y) {
    const std::uint8_t* from = image.row(y);
    std::uint8_t* to = out.row(y);
    for (std::size_t i = 0; i < out.row_bytes(); ++i) to[i] = blend(to[i], from[i], float(factor));
  }
  return out;
}

}  // namespace lockstep::data
