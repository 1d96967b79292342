#pragma once

// Rotation, shearing and shifting, with torchvision's functions' names and the bytes that they give
// for Pillow pictures. Pure functions, thread-safe.

#include <array>
#include <cstdint>

#include "lockstep/data/image.h"
#include "lockstep/data/transforms/resample_plan.h"

namespace lockstep::data {

/// Where the pixel at (x, y) of the result comes from: (m0 x + m1 y + m2, m3 x + m4 y + m5); centres of
/// pixels are at halves.
using AffineMatrix = std::array<double, 6>;

/// How the pixels are made: nearest or bilinear, and the colour of what comes from outside.
struct WarpOptions {
  Interpolation interpolation = Interpolation::nearest;
  std::array<std::uint8_t, 3> fill{};  ///< a grey picture takes the first
};

/// The picture of `size` whose pixels come from where `matrix` says. UsageError for bicubic.
Image warp(const ImageView& image, Size size, const AffineMatrix& matrix, const WarpOptions& options);

/// What affine() does to a picture.
struct AffineOptions {
  std::array<double, 2> center{};     ///< x, y of the point that stays
  std::array<double, 2> translate{};  ///< pixels to the right and down
  std::array<double, 2> shear{};      ///< degrees along x and y
};

/// torchvision's inverse matrix for angle 0 and scale 1.
AffineMatrix affine_matrix(const AffineOptions& options);

/// The picture turned by `degrees` counter-clockwise about its middle. With `expand` as large as needed
/// to hold all of it.
Image rotate(const ImageView& image, double degrees, const WarpOptions& options = {}, bool expand = false);

}  // namespace lockstep::data
