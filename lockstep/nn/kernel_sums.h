#pragma once

// Sums by channel, of the values of a block: some rows of channels, or one plane. Only included by kernel.h.

#include "lockstep/nn/lanes.h"

namespace lockstep::nn {
namespace {

struct Range {
  std::size_t begin;
  std::size_t end;
};

inline Range part_of(std::size_t whole, std::size_t chunk, std::size_t chunks) {
  return {whole * chunk / chunks, whole * (chunk + 1) / chunks};
}

// So many that a block stays in the first cache between two looks at it, and that the work in float64 behind each is
// little beside it.
inline std::size_t rows_of_block(std::size_t channels) {
  constexpr std::size_t kValues = 8192, kFewest = 32, kMost = 512;
  const std::size_t rows = kValues / channels;
  return rows < kFewest ? kFewest : rows > kMost ? kMost : rows;
}

// K sums of V vectors side by side, R rows at a time, so that additions need not wait for each other.
// term(sums, offset, lanes, v) adds what lies at `offset`.
template <int K, int V, int R, class Lanes, class Term>
[[gnu::always_inline]] inline void sum_strip(Range rows, std::size_t channels, std::size_t c, Lanes lanes,
                                             const Term& term, Floats (&found)[V][K]) {
  Floats sums[R][V][K] = {};
  std::size_t row = rows.begin;
  for (; row + R <= rows.end; row += R)
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) term(sums[r][v], (row + r) * channels + c + v * kLanes, lanes, v);
  for (; row < rows.end; ++row)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) term(sums[0][v], row * channels + c + v * kLanes, lanes, v);
  for (int v = 0; v < V; ++v)
    for (int k = 0; k < K; ++k) {
      found[v][k] = sums[0][v][k];
      for (int r = 1; r < R; ++r) found[v][k] += sums[r][v][k];
    }
}

// The same of a plane, whose rows are of 16 lanes; at its end `term` gets the lanes that are left.
template <int K, class Term>
[[gnu::always_inline]] inline void sum_plane(std::size_t first, std::size_t inner, const Term& term,
                                             Floats (&found)[1][K]) {
  const std::size_t rows = inner / kLanes, rest = inner % kLanes;
  sum_strip<K, 1, 4>(
      {0, rows}, kLanes, 0, Full{},
      [&](Floats(&sums)[K], std::size_t offset, Full lanes, int v)
          __attribute__((always_inline)) { term(sums, first + offset, lanes, v); },
      found);
  if (rest > 0) term(found[0], first + rows * kLanes, Some{rest}, 0);
}

// strip(c, lanes, count of vectors as a constant) for all channels.
template <class Strip>
[[gnu::always_inline]] inline void for_strips(std::size_t channels, const Strip& strip) {
  constexpr int kWide = 4;
  std::size_t c = 0;
  for (; c + kWide * kLanes <= channels; c += kWide * kLanes) strip.template run<kWide>(c, Full{});
  for (; c + kLanes <= channels; c += kLanes) strip.template run<1>(c, Full{});
  if (c < channels) strip.template run<1>(c, Some{channels - c});
}

// ---- mean and squares around it

// Adds one channel's block, whose values are `count` around `middle` with these sums of distances to it.
[[gnu::always_inline]] inline void add_block(double before, double count, double middle, double distances,
                                             double squares, double& mean, double& squares_around) {
  const double off = distances / count;
  const double distance = middle + off - mean;
  mean += distance * (count / (before + count));
  squares_around += squares - distances * off + distance * distance * (before * count / (before + count));
}

template <class T>
struct MomentsOfRows {
  const T* x;
  std::size_t channels;
  Range rows;
  const Moments& found;

  template <int V, class Lanes>
  [[gnu::always_inline]] void run(std::size_t c, Lanes lanes) const {
    const auto count = float(rows.end - rows.begin);
    Floats sums[V][1], around[V][2], middle[V];
    sum_strip<1, V, 4 / V>(
        rows, channels, c, lanes,
        [&](Floats(&sum)[1], std::size_t offset, Lanes few, int)
            __attribute__((always_inline)) { sum[0] += few.get(x + offset); },
        sums);
    for (int v = 0; v < V; ++v) middle[v] = sums[v][0] / count;
    sum_strip<2, V, 4 / V>(
        rows, channels, c, lanes,
        [&](Floats(&sum)[2], std::size_t offset, Lanes few, int v) __attribute__((always_inline)) {
          const Floats distance = few.get(x + offset) - middle[v];
          sum[0] += distance;
          sum[1] += distance * distance;
        },
        around);
    for (int v = 0; v < V; ++v)
      for (std::size_t lane = 0; lane < lanes.count; ++lane) {
        const std::size_t channel = c + v * kLanes + lane;
        add_block(found.count, double(count), double(middle[v][lane]), double(around[v][0][lane]),
                  double(around[v][1][lane]), found.mean[channel], found.squares_around[channel]);
      }
  }
};

template <class T>
void moments_of_plane(const T* x, std::size_t inner, double before, double& mean, double& squares_around) {
  Floats sums[1][1], around[1][2];
  sum_plane<1>(
      0, inner,
      [&](Floats(&sum)[1], std::size_t offset, auto lanes, int)
          __attribute__((always_inline)) { sum[0] += lanes.get(x + offset); },
      sums);
  const auto middle = float(total(sums[0][0]) / double(inner));
  sum_plane<2>(
      0, inner,
      [&](Floats(&sum)[2], std::size_t offset, auto lanes, int) __attribute__((always_inline)) {
        const Floats distance = lanes.only(lanes.get(x + offset) - middle);
        sum[0] += distance;
        sum[1] += distance * distance;
      },
      around);
  add_block(before, double(inner), double(middle), total(around[0][0]), total(around[0][1]), mean, squares_around);
}

template <class T>
void moments(const Planes& planes, const T* x, std::size_t chunk, std::size_t chunks, Moments& found) {
  const Range part = part_of(planes.outer, chunk, chunks);
  if (planes.inner == 1) {
    const std::size_t step = rows_of_block(planes.channels);
    for (std::size_t row = part.begin; row < part.end; row += step) {
      const Range rows{row, row + step < part.end ? row + step : part.end};
      for_strips(planes.channels, MomentsOfRows<T>{x, planes.channels, rows, found});
      found.count += double(rows.end - rows.begin);
    }
    return;
  }
  for (std::size_t picture = part.begin; picture < part.end; ++picture) {
    for (std::size_t c = 0; c < planes.channels; ++c)
      moments_of_plane(x + (picture * planes.channels + c) * planes.inner, planes.inner, found.count, found.mean[c],
                       found.squares_around[c]);
    found.count += double(planes.inner);
  }
}

// ---- the sums of backward

template <class T>
struct GradientAt {
  const T* x;
  const T* dy;
  const T* output;  // null: the ReLU's input is that of `affine`
  T* cut;
  Affine affine;
  const float* mean;

  template <class Lanes, class Channel>
  [[gnu::always_inline]] void add(Floats (&sums)[2], std::size_t offset, Lanes lanes, Channel channel) const {
    const Floats value = lanes.get(x + offset);
    const Floats z = output != nullptr ? lanes.get(output + offset)
                                       : value * channel.of(affine.scale, lanes) + channel.of(affine.shift, lanes);
    const Floats g = behind_relu(z, lanes.get(dy + offset));
    if (output != nullptr) lanes.put(cut + offset, g);
    sums[0] += g;
    sums[1] += g * lanes.only(value - channel.of(mean, lanes));
  }
};

template <class T>
struct GradientsOfRows {
  const GradientAt<T>& at;
  std::size_t channels;
  Range rows;
  const GradientSums& found;

  template <int V, class Lanes>
  [[gnu::always_inline]] void run(std::size_t c, Lanes lanes) const {
    Floats sums[V][2];
    sum_strip<2, V, V == 1 ? 2 : 1>(
        rows, channels, c, lanes,
        [&](Floats(&sum)[2], std::size_t offset, Lanes few, int v)
            __attribute__((always_inline)) { at.add(sum, offset, few, ByLane{c + v * kLanes}); },
        sums);
    for (int v = 0; v < V; ++v)
      for (std::size_t lane = 0; lane < lanes.count; ++lane) {
        found.plain[c + v * kLanes + lane] += double(sums[v][0][lane]);
        found.products[c + v * kLanes + lane] += double(sums[v][1][lane]);
      }
  }
};

template <class T>
void gradient_sums(const Planes& planes, const T* x, const T* dy, const T* output, T* cut, Affine affine,
                   const float* mean, std::size_t chunk, std::size_t chunks, const GradientSums& found) {
  const Range part = part_of(planes.outer, chunk, chunks);
  const GradientAt<T> at{x, dy, output, cut, affine, mean};
  if (planes.inner == 1) {
    const std::size_t step = rows_of_block(planes.channels);
    for (std::size_t row = part.begin; row < part.end; row += step)
      for_strips(planes.channels,
                 GradientsOfRows<T>{at, planes.channels, {row, row + step < part.end ? row + step : part.end}, found});
    return;
  }
  for (std::size_t plane = part.begin * planes.channels; plane < part.end * planes.channels; ++plane) {
    const std::size_t c = plane % planes.channels;
    Floats sums[1][2];
    sum_plane<2>(
        plane * planes.inner, planes.inner,
        [&](Floats(&sum)[2], std::size_t offset, auto lanes, int)
            __attribute__((always_inline)) { at.add(sum, offset, lanes, ByPlane{c}); },
        sums);
    found.plain[c] += total(sums[0][0]);
    found.products[c] += total(sums[0][1]);
  }
}

}  // namespace
}  // namespace lockstep::nn
