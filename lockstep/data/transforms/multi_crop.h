#pragma once

// FiveCrop and TenCrop, with torchvision's places and order: several parts of one picture, over which an evaluation
// averages. They come last: PictureBatchOptions::crops.

#include <vector>

#include "lockstep/data/transforms/picture.h"

namespace lockstep::data {

/// What FiveCrop and TenCrop are; both are but ways to make one. Thread-safe.
class MultiCrop {
 public:
  /// How many parts there are.
  int count() const { return second_five_ == SecondFive::none ? 5 : 10; }

  /// The parts, all of one size. They share the picture's pixels. UsageError when the picture is smaller than a part.
  std::vector<Picture> apply(Picture picture) const;

 protected:
  enum class SecondFive { none, mirrored, upside_down };

  /// UsageError naming the class unless the size is positive.
  MultiCrop(const char* name, Size size, SecondFive second_five);

 private:
  const char* name_;
  Size size_;
  SecondFive second_five_;
};

/// Upper left, upper right, lower left, lower right and the middle.
class FiveCrop : public MultiCrop {
 public:
  /// UsageError unless the size is positive.
  explicit FiveCrop(Size size) : MultiCrop("FiveCrop", size, SecondFive::none) {}
  explicit FiveCrop(int edge) : FiveCrop(Size{edge, edge}) {}
};

struct TenCropOptions {
  bool vertical_flip = false;  ///< the second five are of the picture upside down, not of its mirror image
};

/// The five of FiveCrop, and those of the mirror image.
class TenCrop : public MultiCrop {
 public:
  /// UsageError unless the size is positive.
  explicit TenCrop(Size size, const TenCropOptions& options = {})
      : MultiCrop("TenCrop", size, options.vertical_flip ? SecondFive::upside_down : SecondFive::mirrored) {}
  explicit TenCrop(int edge, const TenCropOptions& options = {}) : TenCrop(Size{edge, edge}, options) {}
};

}  // namespace lockstep::data
