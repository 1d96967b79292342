#pragma once

// Rotation, shearing, scaling, shifting and perspective, with torchvision's functions' names and the bytes that they
// give for Pillow pictures. Pure functions, thread-safe.

#include <array>
#include <cstdint>

#include "lockstep/data/image.h"
#include "lockstep/data/transforms/resample_plan.h"

namespace lockstep::data {

/// Where the pixel at (x, y) of the result comes from: (m0 x + m1 y + m2, m3 x + m4 y + m5); centres of
/// pixels are at halves.
using AffineMatrix = std::array<double, 6>;

/// The same, both divided by m6 x + m7 y + 1.
using PerspectiveMatrix = std::array<double, 8>;

/// How the pixels are made, from the picture as it is (no antialiasing), and the colour of what comes from outside.
/// Bicubic is Pillow's of Image.transform: Keys' cubic with a = −1, not the −1/2 of resize(). UsageError from
/// who makes pixels by an interpolation of resizing alone.
struct WarpOptions {
  Interpolation interpolation = Interpolation::nearest;
  std::array<std::uint8_t, 3> fill{};  ///< a grey picture takes the first
};

/// The picture of `size` whose pixels come from where `matrix` says.
Image warp(const ImageView& image, Size size, const AffineMatrix& matrix, const WarpOptions& options);

/// The picture of the same size whose pixels come from where `matrix` says.
Image warp_perspective(const ImageView& image, const PerspectiveMatrix& matrix, const WarpOptions& options);

/// What affine() does to a picture, in this order: shear, scaling, turn, shift.
struct AffineOptions {
  std::array<double, 2> center{};     ///< x, y of the point that stays
  double angle = 0;                   ///< degrees, clockwise
  std::array<double, 2> translate{};  ///< pixels to the right and down
  double scale = 1;                   ///< above 0
  std::array<double, 2> shear{};      ///< degrees along x and y
};

/// torchvision's inverse matrix (_get_inverse_affine_matrix), its operations in its order.
AffineMatrix affine_matrix(const AffineOptions& options);

/// The picture turned by `degrees` counter-clockwise about its middle. With `expand` as large as needed
/// to hold all of it.
Image rotate(const ImageView& image, double degrees, const WarpOptions& options = {}, bool expand = false);

}  // namespace lockstep::data
