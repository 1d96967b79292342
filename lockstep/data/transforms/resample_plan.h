#pragma once

// Which source samples make a sample of a resized line, and by which weights: pure numbers.

#include <cstdint>
#include <vector>

#include "lockstep/data/image.h"

namespace lockstep::data {

/// How a pixel of the resized picture is made; names and results are Pillow's.
enum class Interpolation {
  nearest,   ///< the pixel at its centre
  bilinear,  ///< a triangle over the pixels that it covers
  bicubic,   ///< Keys' cubic with a = −1/2, as wide
  box,       ///< their mean, without weights; this and what follows is for resizing alone
  hamming,   ///< a sinc in Hamming's window, as wide as the triangle
  lanczos,   ///< a sinc in the window of a wider one, of three lobes
};

/// For each of the wanted samples a range of the source and its weights.
struct ResamplePlan {
  struct Range {
    int first;
    int taps;
  };
  std::vector<Range> ranges;
  std::vector<std::int32_t> weights;  ///< in 1/2^kWeightBits; those of sample i begin at i * max_taps
  int max_taps = 0;

  const std::int32_t* weights_of(int i) const { return weights.data() + std::ptrdiff_t(i) * max_taps; }
};

/// A line in another length: `to` samples out of the stretch [begin, end] of `from`.
struct Scaling {
  int from = 0;
  float begin = 0;
  float end = 0;
  int to = 0;
};

/// Neighbours on a line.
struct Stretch {
  int first = 0;
  int count = 0;
};

/// The plan for the new samples `wanted`. Enlarging interpolates; reducing widens the filter to the samples that a new
/// one covers (antialiasing). Any but nearest. The arithmetic follows Pillow's in type and order, so the weights
/// are equal.
ResamplePlan plan_resample(const Scaling& scaling, Stretch wanted, Interpolation interpolation);

/// Whether Pillow (13) takes the columns before the rows, to have less work; otherwise the rows come
/// first. The sizes are those of whole pictures, whatever part of it is asked for.
bool columns_first(Size from, Size to);

/// Which source samples the new ones `wanted` are as nearest neighbours, by Pillow's running sum; −1: outside.
std::vector<int> plan_nearest(const Scaling& scaling, Stretch wanted);

}  // namespace lockstep::data
