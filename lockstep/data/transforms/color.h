#pragma once

// Colours, with the names of torchvision's functional module and the bytes that it gives for Pillow
// pictures. Grey or RGB pictures; pure functions, thread-safe.

#include <array>
#include <cstdint>

#include "lockstep/data/image.h"

namespace lockstep::data {

/// A blend of something plain and the picture: 0 gives the plain one, 1 the picture, 2 exaggerates.
/// brightness: black; contrast: the mean of its grey; saturation: its grey; sharpness: the picture smoothed.
Image adjust_brightness(const ImageView& image, double factor);
Image adjust_contrast(const ImageView& image, double factor);
Image adjust_saturation(const ImageView& image, double factor);
Image adjust_sharpness(const ImageView& image, double factor);

/// Turns the hue by `factor` of the circle, through 8-bit HSV as Pillow. A grey picture stays as it is.
/// UsageError unless −0.5 <= factor <= 0.5.
Image adjust_hue(const ImageView& image, double factor);

Image invert(const ImageView& image);

/// Keeps the upper `bits` of each sample; with 0 all is black. UsageError unless 0 <= bits <= 8.
Image posterize(const ImageView& image, int bits);

/// Inverts samples from `threshold` on.
Image solarize(const ImageView& image, double threshold);

/// Stretches each channel to the full range.
Image autocontrast(const ImageView& image);

/// Spreads each channel's values evenly over the range.
Image equalize(const ImageView& image);

/// For each channel what becomes of each value.
using ValueTables = std::array<std::array<std::uint8_t, 256>, 3>;
Image map_values(const ImageView& image, const ValueTables& tables);

}  // namespace lockstep::data
