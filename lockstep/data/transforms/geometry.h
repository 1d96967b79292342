#pragma once

// Resize, RandomResizedCrop, flips and Grayscale as steps of a Compose, with torchvision's names,
// defaults and numbers.

#include <optional>

#include "lockstep/data/transforms/resize.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

/// To a fixed size, or the smaller edge to a length (see resized_by_edge()). Only what later steps look at is computed:
/// see resized().
class Resize : public Transform {
 public:
  /// UsageError unless the size is positive.
  explicit Resize(Size size, Interpolation interpolation = Interpolation::bilinear);
  /// UsageError unless 0 < edge < max_size.
  explicit Resize(int edge, Interpolation interpolation = Interpolation::bilinear, std::optional<int> max_size = {});
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  std::optional<Size> size_;
  int edge_ = 0;
  std::optional<int> max_size_;
  Interpolation interpolation_;
};

struct Interval {
  double low = 0;
  double high = 1;
};

struct RandomResizedCropOptions {
  Interval scale = {0.08, 1.0};             ///< of the crop's area, as a part of the picture's
  Interval ratio = {3.0 / 4.0, 4.0 / 3.0};  ///< of the crop's width to its height, uniform in its logarithm
  Interpolation interpolation = Interpolation::bilinear;
};

/// The box that torchvision would draw: up to ten tries to fit one of random area and ratio, then the
/// largest box in the middle whose ratio is allowed.
CropBox choose_crop(Size image, const RandomResizedCropOptions& options, base::RandomStream& random);

/// A random box, resized; to a square where one number is given.
class RandomResizedCrop : public Transform {
 public:
  /// UsageError unless the size is positive, 0 < scale.low <= scale.high, 0 < ratio.low <= ratio.high.
  explicit RandomResizedCrop(Size size, const RandomResizedCropOptions& options = {});
  explicit RandomResizedCrop(int edge, const RandomResizedCropOptions& options = {})
      : RandomResizedCrop(Size{edge, edge}, options) {}
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  Size size_;
  RandomResizedCropOptions options_;
};

/// Left becomes right, with this probability.
class RandomHorizontalFlip : public Transform, private Placer {
 public:
  /// UsageError unless 0 <= p <= 1.
  explicit RandomHorizontalFlip(double p = 0.5);
  void apply(Picture& picture, base::RandomStream& random) const final;
  const Placer* placer() const override { return this; }

 private:
  void place(Placement& placement, base::RandomStream& random) const override;
  bool crops() const override { return false; }

  double p_;
};

/// The picture with its last row first.
Image upside_down(const ImageView& image);

/// The upper row becomes the lowest, with this probability.
class RandomVerticalFlip : public Transform {
 public:
  /// UsageError unless 0 <= p <= 1.
  explicit RandomVerticalFlip(double p = 0.5);
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  double p_;
};

/// ITU-R 601 luma in Pillow's integers: (19595 R + 38470 G + 7471 B + 2^15) / 2^16. A grey picture stays.
Image to_grey(const ImageView& image);

/// The same in one channel, or in three equal ones.
Image to_grey(const ImageView& image, int channels);

/// One channel, or three equal ones.
class Grayscale : public Transform {
 public:
  /// UsageError unless channels is 1 or 3.
  explicit Grayscale(int channels = 1);
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  int channels_;
};

}  // namespace lockstep::data
