#pragma once

// GaussianBlur, with torchvision's options, kernels and borders. torchvision blurs in float32 whatever the picture, and
// so do we: a sample differs from its by at most one level, where both are almost half way between two.

#include <array>
#include <span>
#include <vector>

#include "lockstep/data/transforms/geometry.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

/// Numbers in rows from top to bottom, the channels of a pixel side by side.
struct FloatImage {
  Size size;
  int channels = 1;
  std::vector<float> values;
};

/// exp(−x²/2σ²) at the whole numbers around 0, divided by their sum. UsageError unless size is odd and positive and
/// sigma above 0.
std::vector<float> gaussian_kernel(int size, double sigma);

/// The convolution with a kernel along the rows and one along the columns; beyond the edge the picture is mirrored,
/// the edge itself not repeated. Kernels of odd length.
FloatImage blurred(const FloatImage& image, std::span<const float> across, std::span<const float> down);

/// The same of a picture, rounded half to even. Both numbers are first along the rows, then along the columns.
Image gaussian_blur(const ImageView& image, std::array<int, 2> kernel_size, std::array<double, 2> sigma);

/// Blurred by a sigma from its range.
class GaussianBlur : public Transform {
 public:
  /// A kernel of so many columns and rows, or one number for both. UsageError unless they are odd and positive, and
  /// 0 < sigma.low <= sigma.high. Always the same sigma: {1.5, 1.5}.
  explicit GaussianBlur(const std::array<int, 2>& kernel_size, const Interval& sigma = {0.1, 2.0});
  explicit GaussianBlur(int kernel_size, const Interval& sigma = {0.1, 2.0})
      : GaussianBlur(std::array{kernel_size, kernel_size}, sigma) {}
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  std::array<int, 2> kernel_size_;
  Interval sigma_;
};

}  // namespace lockstep::data
