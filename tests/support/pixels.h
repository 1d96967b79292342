#pragma once

// Looking at pixels.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "lockstep/data/image.h"

namespace lockstep::testing {

inline std::vector<int> pixels_of(const data::Image& image) { return {image.row(0), image.row(0) + image.bytes()}; }

inline bool same_pixels(const data::Image& a, const data::Image& b) {
  return a.height() == b.height() && a.width() == b.width() && a.channels() == b.channels() &&
         std::memcmp(a.row(0), b.row(0), a.bytes()) == 0;
}

/// The largest difference of a sample; 256 when the shapes differ.
inline int largest_difference(const data::Image& a, const data::Image& b) {
  if (a.height() != b.height() || a.width() != b.width() || a.channels() != b.channels()) return 256;
  int largest = 0;
  for (std::size_t i = 0; i < a.bytes(); ++i) largest = std::max(largest, std::abs(a.row(0)[i] - b.row(0)[i]));
  return largest;
}

}  // namespace lockstep::testing
