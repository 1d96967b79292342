#include <cmath>
#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/affine.h"

namespace lockstep::data {
namespace {

void fill_with(Image& image, const std::array<std::uint8_t, 3>& color) {
  const auto channels = std::size_t(image.channels());
  for (std::size_t i = 0; i < image.bytes(); i += channels) std::memcpy(image.row(0) + i, color.data(), channels);
}

void copy_pixel(const ImageView& image, int x, int y, std::uint8_t* to) {
  if (x < 0 || x >= image.width || y < 0 || y >= image.height) return;
  const std::uint8_t* from = image.row(y) + std::ptrdiff_t(x) * image.channels;
  for (int c = 0; c < image.channels; ++c) to[c] = from[c];
}

// Rows stay rows and columns columns: running sums along each, as plan_nearest().
void shift_nearest(const ImageView& image, const AffineMatrix& m, Image& out) {
  const auto places = [](double place, double step, int count) {
    std::vector<int> all;
    for (int i = 0; i < count; ++i, place += step) all.push_back(place < 0 ? -1 : int(place));
    return all;
  };
  const std::vector<int> columns = places(m[2] + m[0] * 0.5, m[0], out.width());
  const std::vector<int> rows = places(m[5] + m[4] * 0.5, m[4], out.height());
  for (int y = 0; y < out.height(); ++y) {
    std::uint8_t* to = out.row(y);
    for (const int column : columns) {
      copy_pixel(image, column, rows[std::size_t(y)], to);
      to += image.channels;
    }
  }
}

// Where the corners come from fits into 16 bits before the point.
bool fits_fixed(const AffineMatrix& m, Size size) {
  constexpr double kLimit = 32768;
  for (const int x : {0, size.width}) {
    for (const int y : {0, size.height}) {
      if (std::abs(x * m[0] + y * m[1] + m[2]) >= kLimit || std::abs(x * m[3] + y * m[4] + m[5]) >= kLimit)
        return false;
    }
  }
  return true;
}

int fixed(double x) { return int(std::floor(x * 65536.0 + 0.5)); }

// Steps of 1/65536 pixel, summed up; wraps where Pillow's ints would overflow, which is outside anyway.
void warp_fixed(const ImageView& image, const AffineMatrix& m, Image& out) {
  const auto start = [&](int row) { return std::uint32_t(fixed(m[row + 2] + m[row] * 0.5 + m[row + 1] * 0.5)); };
  std::uint32_t row_x = start(0), row_y = start(3);
  for (int y = 0; y < out.height(); ++y) {
    std::uint32_t at_x = row_x, at_y = row_y;
    std::uint8_t* to = out.row(y);
    for (int x = 0; x < out.width(); ++x, to += image.channels) {
      copy_pixel(image, std::int32_t(at_x) >> 16, std::int32_t(at_y) >> 16, to);
      at_x += std::uint32_t(fixed(m[0]));
      at_y += std::uint32_t(fixed(m[3]));
    }
    row_x += std::uint32_t(fixed(m[1]));
    row_y += std::uint32_t(fixed(m[4]));
  }
}

// Pictures beyond 32767 pixels.
void warp_floating(const ImageView& image, const AffineMatrix& m, Image& out) {
  const auto whole = [](double x) { return x < 0 ? -1 : int(std::min(x, 1e9)); };
  double row_x = m[2] + m[1] * 0.5 + m[0] * 0.5, row_y = m[5] + m[4] * 0.5 + m[3] * 0.5;
  for (int y = 0; y < out.height(); ++y, row_x += m[1], row_y += m[4]) {
    double at_x = row_x, at_y = row_y;
    std::uint8_t* to = out.row(y);
    for (int x = 0; x < out.width(); ++x, to += image.channels, at_x += m[0], at_y += m[3]) {
      copy_pixel(image, whole(at_x), whole(at_y), to);
    }
  }
}

double between(double a, double b, double part) { return a + (b - a) * part; }

// The pixel around (x, y) by its four neighbours; beyond the edge the edge is repeated.
void mix_pixel(const ImageView& image, double x, double y, std::uint8_t* to) {
  const bool inside = x >= 0 && x < image.width && y >= 0 && y < image.height;
  if (!inside) return;
  x -= 0.5;
  y -= 0.5;
  const int column = int(std::floor(x)), row = int(std::floor(y));
  const double dx = x - column, dy = y - row;
  const auto clipped = [](int i, int count) { return i < 0 ? 0 : i < count ? i : count - 1; };
  const std::ptrdiff_t left = std::ptrdiff_t(clipped(column, image.width)) * image.channels;
  const std::ptrdiff_t right = std::ptrdiff_t(clipped(column + 1, image.width)) * image.channels;
  const std::uint8_t* upper = image.row(clipped(row, image.height));
  const std::uint8_t* lower = image.row(clipped(row + 1, image.height));
  for (int c = 0; c < image.channels; ++c) {
    const double above = between(upper[left + c], upper[right + c], dx);
    const double below = between(lower[left + c], lower[right + c], dx);
    to[c] = std::uint8_t(between(above, below, dy));
  }
}

void warp_bilinear(const ImageView& image, const AffineMatrix& m, Image& out) {
  for (int y = 0; y < out.height(); ++y) {
    for (int x = 0; x < out.width(); ++x) {
      const double at_x = x + 0.5, at_y = y + 0.5;
      mix_pixel(image, m[0] * at_x + m[1] * at_y + m[2], m[3] * at_x + m[4] * at_y + m[5],
                out.row(y) + std::ptrdiff_t(x) * image.channels);
    }
  }
}

}  // namespace

// Pillow chooses the arithmetic in the same way; at the edge of a pixel it decides which one is seen.
Image warp(const ImageView& image, Size size, const AffineMatrix& matrix, const WarpOptions& options) {
  if (options.interpolation == Interpolation::bicubic) {
    throw UsageError("warp: bicubic interpolation, nearest or bilinear expected");
  }
  Image out(size, image.channels);
  fill_with(out, options.fill);
  if (options.interpolation == Interpolation::bilinear) {
    warp_bilinear(image, matrix, out);
  } else if (matrix[1] == 0 && matrix[3] == 0) {
    shift_nearest(image, matrix, out);
  } else if (fits_fixed(matrix, size)) {
    warp_fixed(image, matrix, out);
  } else {
    warp_floating(image, matrix, out);
  }
  return out;
}

}  // namespace lockstep::data
