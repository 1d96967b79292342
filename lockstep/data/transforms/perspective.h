#pragma once

// RandomPerspective, with torchvision's options, corners and bytes.

#include <array>

#include "lockstep/data/transforms/affine.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

/// x, y of four pixels: upper left, upper right, lower right, lower left.
using Corners = std::array<std::array<int, 2>, 4>;

/// The matrix that takes each pixel of `to` from that of `from`: eight linear equations, solved in double, each
/// coefficient then a float32, as torchvision's. Two solvers agree to the rounding of that float32. Three corners on a
/// line have no such matrix: the identity.
PerspectiveMatrix perspective_matrix(const Corners& from, const Corners& to);

/// The corners of a picture.
Corners corners_of(Size image);

/// Where torchvision would draw the corners: each in a rectangle at its place that `distortion_scale` of half of the
/// picture is wide and high.
Corners distorted(Size image, double distortion_scale, base::RandomStream& random);

struct RandomPerspectiveOptions {
  double distortion_scale = 0.5;  ///< how far corners may go: 0 nowhere, 1 to the middle
  double p = 0.5;
  WarpOptions warp = {.interpolation = Interpolation::bilinear};
};

/// The picture as seen from somewhere else, with probability p.
class RandomPerspective : public Transform {
 public:
  /// UsageError unless 0 <= distortion_scale <= 1 and 0 <= p <= 1.
  explicit RandomPerspective(const RandomPerspectiveOptions& options = {});
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  RandomPerspectiveOptions options_;
};

}  // namespace lockstep::data
