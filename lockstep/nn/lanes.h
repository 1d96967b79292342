#pragma once

// Sixteen values at a time, or the last few of a row, and what belongs to their channels. Only included by the
// kernel_*.cpp files, each of which is compiled for its instruction set.

#include <cstddef>
#include <cstdint>

#include "lockstep/comm/reduce/vectors.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn {
namespace {  // each kernel file its own: the same names mean other code there

using comm::Floats;
using comm::Words;

constexpr std::size_t kLanes = 16;
using Bytes __attribute__((vector_size(kLanes))) = std::uint8_t;

inline Floats all(float x) { return Floats{} + x; }
inline Floats widen(const float* p) { return comm::load<Floats>(p); }
inline Floats widen(const Bf16* p) { return comm::from_bfloat16(comm::load<comm::Vector16>(p)); }
inline void narrow(float* p, Floats x) { comm::store(p, x); }
inline void narrow(Bf16* p, Floats x) { comm::store(p, comm::to_bfloat16(x)); }

/// All lanes.
struct Full {
  template <class T>
  Floats get(const T* p) const {
    return widen(p);
  }
  template <class T>
  void put(T* p, Floats x) const {
    narrow(p, x);
  }
  Words places(const std::uint8_t* p) const { return __builtin_convertvector(comm::load<Bytes>(p), Words); }
  void put_places(std::uint8_t* p, Words x) const { comm::store(p, __builtin_convertvector(x, Bytes)); }
  Floats only(Floats x) const { return x; }
  static constexpr std::size_t count = kLanes;
};

/// The first `count`; the others are zeros and written nowhere.
struct Some {
  std::size_t count;
  template <class T>
  Floats get(const T* p) const {
    T row[kLanes] = {};
    __builtin_memcpy(row, p, count * sizeof(T));
    return widen(row);
  }
  template <class T>
  void put(T* p, Floats x) const {
    T row[kLanes];
    narrow(row, x);
    __builtin_memcpy(p, row, count * sizeof(T));
  }
  Words places(const std::uint8_t* p) const {
    std::uint8_t row[kLanes] = {};
    __builtin_memcpy(row, p, count);
    return Full().places(row);
  }
  void put_places(std::uint8_t* p, Words x) const {
    std::uint8_t row[kLanes];
    Full().put_places(row, x);
    __builtin_memcpy(p, row, count);
  }
  Floats only(Floats x) const {
    float row[kLanes];
    narrow(row, x);
    return get(row);
  }
};

/// Lanes are channels from the first on: rows of channels.
struct ByLane {
  std::size_t first;
  template <class Lanes>
  Floats of(const float* by_channel, Lanes lanes) const {
    return lanes.get(by_channel + first);
  }
};

/// Lanes are all of one channel: planes.
struct ByPlane {
  std::size_t channel;
  template <class Lanes>
  Floats of(const float* by_channel, Lanes) const {
    return all(by_channel[channel]);
  }
};

/// body(i, lanes) for the values i to i + lanes.count of a row of `count`.
template <class Body>
[[gnu::always_inline]] inline void for_lanes(std::size_t count, const Body& body) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, Full{});
  if (i < count) body(i, Some{count - i});
}

/// body(offset, lanes, channel) for all values of the rows or planes `begin` to `end`.
template <class Body>
[[gnu::always_inline]] inline void for_values(const Planes& planes, std::size_t begin, std::size_t end,
                                              const Body& body) {
  if (planes.inner == 1)
    for (std::size_t row = begin; row < end; ++row)
      for_lanes(
          planes.channels, [&](std::size_t c, auto lanes)
                               __attribute__((always_inline)) { body(row * planes.channels + c, lanes, ByLane{c}); });
  else
    for (std::size_t plane = begin; plane < end; ++plane)
      for_lanes(
          planes.inner, [&](std::size_t i, auto lanes) __attribute__((always_inline)) {
            body(plane * planes.inner + i, lanes, ByPlane{plane % planes.channels});
          });
}

/// What a ReLU leaves of x where its input is z; a NaN passes, as in PyTorch.
inline Floats behind_relu(Floats z, Floats x) { return z <= 0 ? Floats{} : x; }

inline double total(Floats x) {
  float lanes[kLanes];
  narrow(lanes, x);
  double sums[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) sums[i] = double(lanes[i]);
  for (std::size_t width = kLanes / 2; width > 0; width /= 2)
    for (std::size_t i = 0; i < width; ++i) sums[i] += sums[i + width];
  return sums[0];
}

}  // namespace
}  // namespace lockstep::nn
