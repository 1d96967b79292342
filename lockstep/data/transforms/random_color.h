#pragma once

// Single colour operations (color.h) that happen with some probability, with torchvision's names and defaults. Another
// one is a class of three lines.

#include <functional>

#include "lockstep/data/transforms/color.h"
#include "lockstep/data/transforms/geometry.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

/// Other pixels, a function of those that are there, with probability p.
class RandomChange : public Transform {
 public:
  void apply(Picture& picture, base::RandomStream& random) const final {
    if (happens(p_, random)) picture.replace(change_(picture.pixels()));
  }

 protected:
  using Change = std::function<Image(const ImageView&)>;

  /// `name` is that of the class, for the UsageError unless 0 <= p <= 1. Loader threads call `change` at the same time.
  RandomChange(const char* name, double p, Change change) : p_(p), change_(std::move(change)) {
    require_probability(p, name);
  }

 private:
  double p_;
  Change change_;
};

/// Its negative.
class RandomInvert : public RandomChange {
 public:
  explicit RandomInvert(double p = 0.5) : RandomChange("RandomInvert", p, invert) {}
};

/// The upper bits of each sample. UsageError unless 1 <= bits <= 8.
class RandomPosterize : public RandomChange {
 public:
  explicit RandomPosterize(int bits, double p = 0.5);
};

/// Samples from the threshold on are inverted.
class RandomSolarize : public RandomChange {
 public:
  explicit RandomSolarize(double threshold, double p = 0.5)
      : RandomChange("RandomSolarize", p, [=](const ImageView& image) { return solarize(image, threshold); }) {}
};

/// 0 is a smoothed picture, 1 the picture, 2 a sharper one. UsageError for a negative factor.
class RandomAdjustSharpness : public RandomChange {
 public:
  explicit RandomAdjustSharpness(double factor, double p = 0.5);
};

/// Each channel stretched to the full range.
class RandomAutocontrast : public RandomChange {
 public:
  explicit RandomAutocontrast(double p = 0.5) : RandomChange("RandomAutocontrast", p, autocontrast) {}
};

/// The values of each channel spread evenly.
class RandomEqualize : public RandomChange {
 public:
  explicit RandomEqualize(double p = 0.5) : RandomChange("RandomEqualize", p, equalize) {}
};

/// Grey, in as many channels as the picture has.
class RandomGrayscale : public RandomChange {
 public:
  explicit RandomGrayscale(double p = 0.1)
      : RandomChange("RandomGrayscale", p, [](const ImageView& image) { return to_grey(image, image.channels); }) {}
};

}  // namespace lockstep::data
