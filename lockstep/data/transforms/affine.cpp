#include "lockstep/data/transforms/affine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numbers>

namespace lockstep::data {
namespace {

double radians(double degrees) { return degrees * (std::numbers::pi / 180); }

// As Python's round(x, 15): by way of the decimal digits.
double rounded_15(double x) {
  char digits[64];
  std::snprintf(digits, sizeof(digits), "%.15f", x);
  return std::strtod(digits, nullptr);
}

struct Point {
  double x, y;
};

Point source_of(const AffineMatrix& m, double x, double y) {
  return {m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]};
}

AffineMatrix rotation(Size size, double degrees) {
  const double angle = -radians(degrees), cosine = std::cos(angle), sine = std::sin(angle);
  AffineMatrix m = {rounded_15(cosine), rounded_15(sine), 0, rounded_15(-sine), rounded_15(cosine), 0};
  const Point middle = {size.width / 2.0, size.height / 2.0};
  const Point moved = source_of(m, -middle.x, -middle.y);
  m[2] = moved.x + middle.x;
  m[5] = moved.y + middle.y;
  return m;
}

// How far the four corners go, in whole pixels.
Size expanded(const AffineMatrix& m, Size size) {
  const Point corners[] = {source_of(m, 0, 0), source_of(m, size.width, 0), source_of(m, size.width, size.height),
                           source_of(m, 0, size.height)};
  const auto [left, right] = std::ranges::minmax(corners, {}, &Point::x);
  const auto [top, bottom] = std::ranges::minmax(corners, {}, &Point::y);
  return {int(std::ceil(bottom.y)) - int(std::floor(top.y)), int(std::ceil(right.x)) - int(std::floor(left.x))};
}

// By a multiple of a quarter turn, counter-clockwise: an exact exchange of pixels.
Image quarter_turns(const ImageView& image, int quarters) {
  const bool upright = quarters % 2 == 0;
  Image out(upright ? image.height : image.width, upright ? image.width : image.height, image.channels);
  for (int y = 0; y < out.height(); ++y) {
    for (int x = 0; x < out.width(); ++x) {
      int row = y, column = x;
      if (quarters == 1) row = x, column = image.width - 1 - y;
      if (quarters == 2) row = image.height - 1 - y, column = image.width - 1 - x;
      if (quarters == 3) row = image.height - 1 - x, column = y;
      std::copy_n(image.row(row) + column * image.channels, image.channels, out.row(y) + x * image.channels);
    }
  }
  return out;
}

}  // namespace

AffineMatrix affine_matrix(const AffineOptions& options) {
  const double angle = radians(options.angle);
  const double shear_x = radians(options.shear[0]), shear_y = radians(options.shear[1]);
  const auto [center_x, center_y] = options.center;
  const double a = std::cos(angle - shear_y) / std::cos(shear_y);
  const double b = -std::cos(angle - shear_y) * std::tan(shear_x) / std::cos(shear_y) - std::sin(angle);
  const double c = std::sin(angle - shear_y) / std::cos(shear_y);
  const double d = -std::sin(angle - shear_y) * std::tan(shear_x) / std::cos(shear_y) + std::cos(angle);
  AffineMatrix m = {d, -b, 0, -c, a, 0};
  for (double& x : m) x /= options.scale;
  m[2] += m[0] * (-center_x - options.translate[0]) + m[1] * (-center_y - options.translate[1]);
  m[5] += m[3] * (-center_x - options.translate[0]) + m[4] * (-center_y - options.translate[1]);
  m[2] += center_x;
  m[5] += center_y;
  return m;
}

Image rotate(const ImageView& image, double degrees, const WarpOptions& options, bool expand) {
  double angle = std::fmod(degrees, 360.0);
  if (angle < 0) angle += 360.0;
  if (angle == 0 || angle == 180) return quarter_turns(image, angle == 0 ? 0 : 2);
  if ((angle == 90 || angle == 270) && (expand || image.width == image.height)) {
    return quarter_turns(image, angle == 90 ? 1 : 3);
  }
  AffineMatrix m = rotation(image.size(), angle);
  if (!expand) return warp(image, image.size(), m, options);
  const Size size = expanded(m, image.size());
  const Point moved = source_of(m, -(size.width - image.width) / 2.0, -(size.height - image.height) / 2.0);
  m[2] = moved.x;
  m[5] = moved.y;
  return warp(image, size, m, options);
}

}  // namespace lockstep::data
