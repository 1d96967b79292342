#include <algorithm>
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

// The pixel that a place is in; beyond any picture where an int ends.
int whole_pixel(double place) { return place < 0 ? -1 : int(std::min(place, 1e9)); }

// Rows stay rows and columns columns: running sums along each, as plan_nearest().
void shift_nearest(const ImageView& image, const AffineMatrix& m, Image& out) {
  const auto places = [](double place, double step, int count) {
    std::vector<int> all;
    for (int i = 0; i < count; ++i, place += step) all.push_back(whole_pixel(place));
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

std::uint32_t fixed(double x) { return std::uint32_t(std::int64_t(std::floor(x * 65536.0 + 0.5))); }

// Steps of 1/65536 pixel, summed up; wraps where Pillow's ints would overflow, which is outside anyway.
void warp_fixed(const ImageView& image, const AffineMatrix& m, Image& out) {
  const auto start = [&](int row) { return fixed(m[row + 2] + m[row] * 0.5 + m[row + 1] * 0.5); };
  std::uint32_t row_x = start(0), row_y = start(3);
  for (int y = 0; y < out.height(); ++y) {
    std::uint32_t at_x = row_x, at_y = row_y;
    std::uint8_t* to = out.row(y);
    for (int x = 0; x < out.width(); ++x, to += image.channels) {
      copy_pixel(image, std::int32_t(at_x) >> 16, std::int32_t(at_y) >> 16, to);
      at_x += fixed(m[0]);
      at_y += fixed(m[3]);
    }
    row_x += fixed(m[1]);
    row_y += fixed(m[4]);
  }
}

// Pictures beyond 32767 pixels.
void warp_floating(const ImageView& image, const AffineMatrix& m, Image& out) {
  double row_x = m[2] + m[1] * 0.5 + m[0] * 0.5, row_y = m[5] + m[4] * 0.5 + m[3] * 0.5;
  for (int y = 0; y < out.height(); ++y, row_x += m[1], row_y += m[4]) {
    double at_x = row_x, at_y = row_y;
    std::uint8_t* to = out.row(y);
    for (int x = 0; x < out.width(); ++x, to += image.channels, at_x += m[0], at_y += m[3]) {
      copy_pixel(image, whole_pixel(at_x), whole_pixel(at_y), to);
    }
  }
}

// A place in the picture, in pixels from its upper left corner.
struct Place {
  double x, y;
};

void sample_nearest(const ImageView& image, Place place, std::uint8_t* to) {
  copy_pixel(image, int(place.x), int(place.y), to);
}

// Beyond the edge the edge is repeated.
int clipped(int i, int count) { return std::clamp(i, 0, count - 1); }

double between(double a, double b, double part) { return a + (b - a) * part; }

// By its four neighbours.
void sample_bilinear(const ImageView& image, Place place, std::uint8_t* to) {
  const double x = place.x - 0.5, y = place.y - 0.5;
  const int column = int(std::floor(x)), row = int(std::floor(y));
  const double dx = x - column, dy = y - row;
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

// Keys' cubic with a = −1 through four values, `part` of the way from the second to the third.
double cubic(double a, double b, double c, double d, double part) {
  const double linear = -a + c;
  const double square = 2 * (a - b) + c - d;
  const double cube = -a + b - c + d;
  return b + part * (linear + part * (square + part * cube));
}

// By its sixteen neighbours.
void sample_bicubic(const ImageView& image, Place place, std::uint8_t* to) {
  const double x = place.x - 0.5, y = place.y - 0.5;
  const int column = int(std::floor(x)), row = int(std::floor(y));
  const double dx = x - column, dy = y - row;
  std::ptrdiff_t at[4];
  const std::uint8_t* rows[4];
  for (int i = 0; i < 4; ++i) {
    at[i] = std::ptrdiff_t(clipped(column - 1 + i, image.width)) * image.channels;
    rows[i] = image.row(clipped(row - 1 + i, image.height));
  }
  for (int c = 0; c < image.channels; ++c) {
    double lines[4];
    for (int i = 0; i < 4; ++i) {
      const std::uint8_t* line = rows[i] + c;
      lines[i] = cubic(line[at[0]], line[at[1]], line[at[2]], line[at[3]], dx);
    }
    to[c] = std::uint8_t(std::clamp(cubic(lines[0], lines[1], lines[2], lines[3], dy), 0.0, 255.0));
  }
}

// Each pixel by itself, from where its centre comes from; `sample` makes the pixel at a place inside.
template <auto sample, class Origin>
void warp_with(const ImageView& image, Origin origin, Image& out) {
  for (int y = 0; y < out.height(); ++y) {
    std::uint8_t* to = out.row(y);
    for (int x = 0; x < out.width(); ++x, to += image.channels) {
      const Place place = origin(x + 0.5, y + 0.5);
      const bool inside = place.x >= 0 && place.x < image.width && place.y >= 0 && place.y < image.height;
      if (inside) sample(image, place, to);
    }
  }
}

template <class Origin>
void warp_by(const ImageView& image, Interpolation interpolation, Origin origin, Image& out) {
  switch (interpolation) {
    case Interpolation::nearest:
      return warp_with<sample_nearest>(image, origin, out);
    case Interpolation::bilinear:
      return warp_with<sample_bilinear>(image, origin, out);
    case Interpolation::bicubic:
      return warp_with<sample_bicubic>(image, origin, out);
    case Interpolation::box:
    case Interpolation::hamming:
    case Interpolation::lanczos:
      throw UsageError("pictures are turned and moved by nearest, bilinear or bicubic interpolation alone");
  }
}

}  // namespace

// Pillow chooses the arithmetic in the same way; at the edge of a pixel it decides which one is seen.
Image warp(const ImageView& image, Size size, const AffineMatrix& matrix, const WarpOptions& options) {
  Image out(size, image.channels);
  fill_with(out, options.fill);
  if (options.interpolation != Interpolation::nearest) {
    const auto origin = [&m = matrix](double x, double y) {
      return Place{m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]};
    };
    warp_by(image, options.interpolation, origin, out);
  } else if (matrix[1] == 0 && matrix[3] == 0) {
    shift_nearest(image, matrix, out);
  } else if (fits_fixed(matrix, size)) {
    warp_fixed(image, matrix, out);
  } else {
    warp_floating(image, matrix, out);
  }
  return out;
}

Image warp_perspective(const ImageView& image, const PerspectiveMatrix& matrix, const WarpOptions& options) {
  Image out(image.size(), image.channels);
  fill_with(out, options.fill);
  const auto origin = [&m = matrix](double x, double y) {
    const double depth = m[6] * x + m[7] * y + 1;
    return Place{(m[0] * x + m[1] * y + m[2]) / depth, (m[3] * x + m[4] * y + m[5]) / depth};
  };
  warp_by(image, options.interpolation, origin, out);
  return out;
}

}  // namespace lockstep::data
