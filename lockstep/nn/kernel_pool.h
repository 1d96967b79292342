#pragma once

// Pooling behind BatchNorm and ReLU, without their output in between. Only included by kernel.h.

#include "lockstep/nn/lanes.h"

namespace lockstep::nn {
namespace {

// Window `o` begins at row o · stride - padding of the picture; the place of a value in its window counts row by row.
template <std::size_t Kernel, std::size_t Stride, std::size_t Padding>
struct Windows {
  static constexpr std::size_t kernel = Kernel;
  static constexpr bool apart = Kernel == Stride && Padding == 0;  // no pixel is in two of them
  struct Rows {
    std::size_t begin, end;
  };
  // Of the picture, which has `size` rows, those in window `o`.
  static Rows rows_in(std::size_t o, std::size_t size) {
    const std::size_t end = o * Stride + Kernel - Padding;  // all windows reach into the picture
    return {o * Stride < Padding ? 0 : o * Stride - Padding, Padding > 0 && end > size ? size : end};
  }
  // The windows, of `count`, in which row `i` is.
  static Rows windows_at(std::size_t i, std::size_t count) {
    const std::size_t end = (i + Padding) / Stride + 1;
    return {i + Padding < Kernel ? 0 : (i + Padding - Kernel) / Stride + 1, end > count ? count : end};
  }
  static std::uint32_t place(std::size_t i, std::size_t oi, std::size_t j, std::size_t oj) {
    return std::uint32_t((i + Padding - oi * Stride) * Kernel + (j + Padding - oj * Stride));
  }
};

template <class T>
struct Picture {
  const PooledShape& shape;
  std::size_t channels, n;

  // Where the channels of a pixel begin, in the pictures and in what pooling leaves of them.
  std::size_t at(std::size_t i, std::size_t j) const { return ((n * shape.height + i) * shape.width + j) * channels; }
  std::size_t pooled(std::size_t oi, std::size_t oj) const {
    return ((n * shape.out_height + oi) * shape.out_width + oj) * channels;
  }
};

// ---- forward

struct Largest {
  Floats z, x;
  Words place;

  [[gnu::always_inline]] void meet(Floats other_z, Floats other_x, std::uint32_t other_place) {
    const auto larger = (other_z > z) | comm::is_nan(other_z);
    z = larger ? other_z : z;
    x = larger ? other_x : x;
    place = larger ? Words{} + other_place : place;
  }
};

template <class W, class T>
void pool_rows(const Planes& planes, const PooledShape& shape, const T* x, Affine affine, T* y, T* from,
               std::uint8_t* places, std::size_t begin, std::size_t end) {
  const std::size_t channels = planes.channels;
  for (std::size_t n = begin; n < end; ++n)
    for (std::size_t oi = 0; oi < shape.out_height; ++oi)
      for (std::size_t oj = 0; oj < shape.out_width; ++oj) {
        const Picture<T> picture{shape, channels, n};
        const auto rows = W::rows_in(oi, shape.height), columns = W::rows_in(oj, shape.width);
        const bool whole = rows.end - rows.begin == W::kernel && columns.end - columns.begin == W::kernel;
        const std::size_t first = picture.at(rows.begin, columns.begin), to = picture.pooled(oi, oj);
        for_lanes(
            channels, [&](std::size_t c, auto lanes) __attribute__((always_inline)) {
              const Floats scale = lanes.get(affine.scale + c), shift = lanes.get(affine.shift + c);
              const Floats first_x = lanes.get(x + first + c);
              Largest best{first_x * scale + shift, first_x, Words{} + W::place(rows.begin, oi, columns.begin, oj)};
              const auto meet = [&](std::size_t at, std::uint32_t place) __attribute__((always_inline)) {
                const Floats value = lanes.get(x + at + c);
                best.meet(value * scale + shift, value, place);
              };
              if (whole) {  // with constants for bounds and places
#pragma GCC unroll 3
                for (std::size_t i = 0; i < W::kernel; ++i)
#pragma GCC unroll 3
                  for (std::size_t j = 0; j < W::kernel; ++j)
                    if (i + j > 0) meet(first + (i * shape.width + j) * channels, std::uint32_t(i * W::kernel + j));
              } else {
                for (std::size_t i = rows.begin; i < rows.end; ++i)
                  for (std::size_t j = columns.begin; j < columns.end; ++j)
                    meet(picture.at(i, j), W::place(i, oi, j, oj));
              }
              lanes.put(y + to + c, behind_relu(best.z, best.z));
              lanes.put(from + to + c, best.x);
              lanes.put_places(places + to + c, best.z <= 0 ? Words{} + kCutOff : best.place);
            });
      }
}

// ---- backward

template <class T>
struct PoolBackward {
  const PooledShape& shape;
  const T* x;
  const T* dy;
  const std::uint8_t* places;
  InputGradient by;
  T* dx;

  template <class Lanes>
  [[gnu::always_inline]] void put(std::size_t at, std::size_t c, Lanes lanes, Floats g) const {
    const Floats distance = lanes.get(x + at + c) - lanes.get(by.mean + c);
    lanes.put(dx + at + c,
              (g - lanes.get(by.middle + c) - distance * lanes.get(by.slope + c)) * lanes.get(by.scale + c));
  }

  // Of any pixel: from all windows in which it is.
  template <class W>
  [[gnu::always_inline]] void put_pixel(const Picture<T>& picture, std::size_t i, std::size_t j) const {
    const auto rows = W::windows_at(i, shape.out_height), columns = W::windows_at(j, shape.out_width);
    for_lanes(
        picture.channels, [&](std::size_t c, auto lanes) __attribute__((always_inline)) {
          Floats g{};
          for (std::size_t oi = rows.begin; oi < rows.end; ++oi)
            for (std::size_t oj = columns.begin; oj < columns.end; ++oj) {
              const std::size_t from = picture.pooled(oi, oj) + c;
              g += lanes.places(places + from) == W::place(i, oi, j, oj) ? lanes.get(dy + from) : Floats{};
            }
          put(picture.at(i, j), c, lanes, g);
        });
  }

  // Of all pixels of a window that shares none with others.
  template <class W>
  [[gnu::always_inline]] void put_window(const Picture<T>& picture, std::size_t oi, std::size_t oj) const {
    const std::size_t first = picture.at(oi * W::kernel, oj * W::kernel), from = picture.pooled(oi, oj);
    for_lanes(
        picture.channels, [&](std::size_t c, auto lanes) __attribute__((always_inline)) {
          const Words chosen = lanes.places(places + from + c);
          const Floats gradient = lanes.get(dy + from + c);
#pragma GCC unroll 2
          for (std::size_t i = 0; i < W::kernel; ++i)
#pragma GCC unroll 2
            for (std::size_t j = 0; j < W::kernel; ++j)
              put(first + (i * shape.width + j) * picture.channels, c, lanes,
                  chosen == std::uint32_t(i * W::kernel + j) ? gradient : Floats{});
        });
  }
};

template <class W, class T>
void pool_gradient_rows(const Planes& planes, const PoolBackward<T>& backward, std::size_t begin, std::size_t end) {
  const PooledShape& shape = backward.shape;
  for (std::size_t n = begin; n < end; ++n) {
    const Picture<T> picture{shape, planes.channels, n};
    std::size_t rows = 0, columns = 0;  // done by windows
    if constexpr (W::apart) {
      rows = shape.out_height * W::kernel;
      columns = shape.out_width * W::kernel;
      for (std::size_t oi = 0; oi < shape.out_height; ++oi)
        for (std::size_t oj = 0; oj < shape.out_width; ++oj) backward.template put_window<W>(picture, oi, oj);
    }
    for (std::size_t i = 0; i < shape.height; ++i)
      for (std::size_t j = i < rows ? columns : 0; j < shape.width; ++j) backward.template put_pixel<W>(picture, i, j);
  }
}

using HalvingWindows = Windows<2, 2, 0>;
using StemWindows = Windows<3, 2, 1>;

template <class T>
void pool(const Planes& planes, const PooledShape& shape, Pooling pooling, const T* x, Affine affine, T* y, T* from,
          std::uint8_t* places, std::size_t begin, std::size_t end) {
  if (pooling == Pooling::halving)
    return pool_rows<HalvingWindows>(planes, shape, x, affine, y, from, places, begin, end);
  pool_rows<StemWindows>(planes, shape, x, affine, y, from, places, begin, end);
}

template <class T>
void pool_input_gradient(const Planes& planes, const PooledShape& shape, Pooling pooling, const T* x, const T* dy,
                         const std::uint8_t* places, InputGradient by, T* dx, std::size_t begin, std::size_t end) {
  const PoolBackward<T> backward{shape, x, dy, places, by, dx};
  if (pooling == Pooling::halving) return pool_gradient_rows<HalvingWindows>(planes, backward, begin, end);
  pool_gradient_rows<StemWindows>(planes, backward, begin, end);
}

}  // namespace
}  // namespace lockstep::nn
