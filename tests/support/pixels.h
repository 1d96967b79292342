#pragma once

// Small pictures, and looking at pixels.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "lockstep/data/transforms/picture.h"

namespace lockstep::testing {

/// Grey, 1, 2, 3, ... row after row.
inline data::Image ramp(int height, int width) {
  data::Image image(height, width, 1);
  std::iota(image.row(0), image.row(0) + image.bytes(), std::uint8_t(1));
  return image;
}

/// One row of these samples.
inline data::Image row_of(const std::vector<std::uint8_t>& samples, int channels) {
  data::Image image(1, int(samples.size()) / channels, channels);
  std::ranges::copy(samples, image.row(0));
  return image;
}

/// What is seen of the picture.
inline data::Image image_of(data::Picture picture) { return copy_of(picture.pixels()); }

inline std::vector<int> pixels_of(const data::Image& image) { return {image.row(0), image.row(0) + image.bytes()}; }

inline std::vector<int> pixels_of(const data::Picture& picture) { return pixels_of(image_of(picture)); }

inline bool same_pixels(const data::Image& a, const data::Image& b) {
  return a.height() == b.height() && a.width() == b.width() && a.channels() == b.channels() &&
         std::memcmp(a.row(0), b.row(0), a.bytes()) == 0;
}

inline bool same_pixels(const data::Picture& a, const data::Image& b) { return same_pixels(image_of(a), b); }

/// The largest difference of a sample; 256 when the shapes differ.
inline int largest_difference(const data::Image& a, const data::Image& b) {
  if (a.height() != b.height() || a.width() != b.width() || a.channels() != b.channels()) return 256;
  int largest = 0;
  for (std::size_t i = 0; i < a.bytes(); ++i) largest = std::max(largest, std::abs(a.row(0)[i] - b.row(0)[i]));
  return largest;
}

}  // namespace lockstep::testing
