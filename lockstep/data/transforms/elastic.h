#pragma once

// ElasticTransform, with torchvision's options and formula. torchvision moves pixels in float32 (grid_sample) whatever
// the picture, and so do we: a sample differs from its by at most one level given the same displacement.
// Simard et al., "Best practices for convolutional neural networks applied to visual document analysis", 2003.

#include "lockstep/data/transforms/affine.h"
#include "lockstep/data/transforms/blur.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

/// A number for x and one for y, or one for both.
struct PerAxis {
  PerAxis(double both) : x(both), y(both) {}  // NOLINT(google-explicit-constructor): .alpha = 50
  PerAxis(double x_axis, double y_axis) : x(x_axis), y(y_axis) {}

  double x;
  double y;
};

/// For each pixel how far from it to the right and down the one lies that takes its place; 2 is the picture's width,
/// or height (torch's normalised coordinates).
struct Displacement {
  FloatImage x;  ///< one channel, of the picture's size
  FloatImage y;
};

/// The picture with its pixels displaced, nearest or bilinear. A place beyond the edge has the fill colour; one at the
/// edge is mixed with it as torchvision mixes, which counts what is outside twice. UsageError for other
/// interpolations.
Image elastic_transform(const ImageView& image, const Displacement& displacement, const WarpOptions& options);

struct ElasticTransformOptions {
  PerAxis alpha = 50;  ///< how far: blurred noise between −1 and 1 is multiplied by half of it, in pixels
  PerAxis sigma = 5;   ///< how smoothly: of the blur, in pixels; 0: the noise is not blurred
  WarpOptions warp = {.interpolation = Interpolation::bilinear};
};

/// As if seen through moving water.
class ElasticTransform : public Transform {
 public:
  /// UsageError unless alpha and sigma are finite and sigma not negative, both 0 or both above, and for other
  /// interpolations than nearest and bilinear.
  explicit ElasticTransform(const ElasticTransformOptions& options = {});

  /// How a picture of this size is displaced.
  Displacement choose(Size image, base::RandomStream& random) const;
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  ElasticTransformOptions options_;
};

}  // namespace lockstep::data
