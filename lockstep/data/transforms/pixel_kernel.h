#pragma once

// The body of the pixel kernels, compiled once per instruction set by pixel_kernel_*.cpp.

#include <cstring>

#include "lockstep/data/transforms/samples.h"

namespace lockstep::data {
namespace {

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

// `Groups` groups of 16 samples; several, because their additions do not wait for each other.
template <int Groups>
void blend_groups(const Blend& blend, std::size_t offset, std::uint8_t* out) {
  Samples sums[Groups];
  for (Samples& sum : sums) sum = Samples::all(kHalf);
  const std::uint8_t* row = blend.rows + offset;
  for (int tap = 0; tap < blend.taps; ++tap, row += blend.stride) {
    for (int group = 0; group < Groups; ++group) sums[group].add_product(blend.weights[tap], row + 16 * group);
  }
  for (int group = 0; group < Groups; ++group) sums[group].store(out + offset + 16 * group);
}

void blend_one(const Blend& blend, std::size_t offset, std::uint8_t* out) {
  std::int32_t sum = kHalf;
  for (int tap = 0; tap < blend.taps; ++tap) sum += blend.weights[tap] * blend.rows[tap * blend.stride + offset];
  out[offset] = std::uint8_t(std::clamp(sum >> kWeightBits, 0, 255));
}

void blend(const Blend& blend, std::uint8_t* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + 48 <= count; i += 48) blend_groups<3>(blend, i, out);
  for (; i + 16 <= count; i += 16) blend_groups<1>(blend, i, out);
  if (i < count && count >= 16) {
    blend_groups<1>(blend, count - 16, out);  // some samples a second time
  } else {
    for (; i < count; ++i) blend_one(blend, i, out);
  }
}

}  // namespace
}  // namespace lockstep::data
