#pragma once

// RandomAffine, with torchvision's options, ranges and bytes.

#include <array>
#include <optional>

#include "lockstep/data/transforms/affine.h"
#include "lockstep/data/transforms/geometry.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

/// Degrees to draw from: one number x is from −x to x, two are the ends.
struct AngleRange {
  AngleRange(double most) : low(-most), high(most) {}  // NOLINT(google-explicit-constructor): .shear = 10
  AngleRange(double from, double to) : low(from), high(to) {}

  double low;
  double high;
};

struct RandomAffineOptions {
  std::array<double, 2> translate = {0, 0};  ///< the largest shift, as parts of width and height, 0 to 1
  Interval scale = {1, 1};
  AngleRange shear = 0;                              ///< along x
  AngleRange shear_y = 0;                            ///< along y: the third and fourth number of Python's shear
  std::optional<std::array<double, 2>> center = {};  ///< x, y in pixels; none: the middle of the picture
  WarpOptions warp = {};
};

/// The picture turned, shifted, scaled and sheared, each by a number from its range. Its size stays.
class RandomAffine : public Transform {
 public:
  /// UsageError unless ranges begin below their ends, translate is in 0 … 1 and scale above 0.
  explicit RandomAffine(const AngleRange& degrees, const RandomAffineOptions& options = {});

  /// What a picture of this size goes through.
  AffineOptions choose(Size image, base::RandomStream& random) const;
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  AngleRange degrees_;
  RandomAffineOptions options_;
};

}  // namespace lockstep::data
