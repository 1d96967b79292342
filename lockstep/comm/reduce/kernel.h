// The reduction of one instruction set; a kernel_*.cpp file defines LOCKSTEP_KERNEL, LOCKSTEP_WIDEN and LOCKSTEP_NARROW
// and includes it.

#include <type_traits>

#include "lockstep/base/limits.h"
#include "lockstep/base/tree.h"
#include "lockstep/comm/reduce/kernels.h"
#include "lockstep/comm/reduce/vectors.h"

namespace lockstep::comm {
namespace {

// ---- elements: how they lie in memory, and what is computed with

template <class T>
struct Plain {
  using Stored = Vector<T>;
  using Computed = Vector<T>;
  static constexpr std::size_t width = sizeof(T);
  static constexpr bool scales = std::is_floating_point_v<T>;
  static Computed widen(Stored v) { return v; }
  static Stored round(Computed v) { return v; }
};

template <Floats (*Widen)(Vector16), Vector16 (*Round)(Floats)>
struct Half {
  using Stored = Vector16;
  using Computed = Floats;
  static constexpr std::size_t width = 2;
  static constexpr bool scales = true;
  static Computed widen(Stored v) { return Widen(v); }
  static Stored round(Computed v) { return Round(v); }
};
using BFloat16 = Half<from_bfloat16, to_bfloat16>;
using Float16 = Half<from_float16, to_float16>;

// ---- ways to combine two

struct Sum {
  template <class V>
  static V of(V a, V b) {
    return a + b;
  }
};
struct Product {
  template <class V>
  static V of(V a, V b) {
    return a * b;
  }
};
// A NaN on the left is kept by the second comparison, one on the right by failing both.
struct Min {
  template <class V>
  static V of(V a, V b) {
    return (a < b) | is_nan(a) ? a : b;
  }
};
struct Max {
  template <class V>
  static V of(V a, V b) {
    return (a > b) | is_nan(a) ? a : b;
  }
};

// ---- the tree

template <class E, class Op, int N>
inline typename E::Computed tree_of(const std::byte* const* inputs, std::size_t at) {
  if constexpr (N == 1) {
    return E::widen(load<typename E::Stored>(inputs[0] + at));
  } else {
    constexpr int left = base::tree_split(N);
    return Op::of(tree_of<E, Op, left>(inputs, at), tree_of<E, Op, N - left>(inputs + left, at));
  }
}

template <class E, class Op>
typename E::Computed tree_of(const std::byte* const* inputs, int count, std::size_t at) {
  if (count == 1) return tree_of<E, Op, 1>(inputs, at);
  if (count == 8) return tree_of<E, Op, 8>(inputs, at);
  const int left = base::tree_split(count);
  return Op::of(tree_of<E, Op>(inputs, left, at), tree_of<E, Op>(inputs + left, count - left, at));
}

template <class E, class Op>
inline typename E::Stored finish(typename E::Computed value, double scale) {
  if constexpr (E::scales && std::is_same_v<Op, Sum>) {
    using Number = std::remove_reference_t<decltype(value[0])>;
    value = value * Number(scale);
  }
  return E::round(value);
}

// The last elements, fewer than a vector: the same in buffers of a vector's size.
template <class E, class Op>
void reduce_rest(const Buffers& buffers, double scale, std::size_t at, std::size_t bytes) {
  alignas(kBytes) std::byte padded[base::kMaxLocalRanks][kBytes];
  static_assert(sizeof padded <= 64 << 10, "kept on the stack: too much for a thread's");
  const std::byte* inputs[base::kMaxLocalRanks];
  for (int i = 0; i < buffers.count; ++i) {
    store(padded[i], Vector<std::uint8_t>{});
    __builtin_memcpy(padded[i], buffers.inputs[i] + at, bytes);
    inputs[i] = padded[i];
  }
  const typename E::Stored result = finish<E, Op>(tree_of<E, Op>(inputs, buffers.count, 0), scale);
  for (int i = 0; i < buffers.copies; ++i) __builtin_memcpy(buffers.outputs[i] + at, &result, bytes);
}

// N and Copies known: pointers and sums stay in registers.
template <class E, class Op, int N, int Copies>
std::size_t reduce_fixed(const Buffers& buffers, double scale, std::size_t at, std::size_t end) {
  constexpr std::size_t step = sizeof(typename E::Stored);
  const std::byte* inputs[N];
  std::byte* outputs[Copies];
  for (int i = 0; i < N; ++i) inputs[i] = buffers.inputs[i];
  for (int i = 0; i < Copies; ++i) outputs[i] = buffers.outputs[i];
  for (; at + step <= end; at += step) {
    const auto result = finish<E, Op>(tree_of<E, Op, N>(inputs, at), scale);
    for (int i = 0; i < Copies; ++i) store(outputs[i] + at, result);
  }
  return at;
}

template <class E, class Op>
std::size_t reduce_any(const Buffers& buffers, double scale, std::size_t at, std::size_t end) {
  constexpr std::size_t step = sizeof(typename E::Stored);
  for (; at + step <= end; at += step) {
    const auto result = finish<E, Op>(tree_of<E, Op>(buffers.inputs, buffers.count, at), scale);
    for (int i = 0; i < buffers.copies; ++i) store(buffers.outputs[i] + at, result);
  }
  return at;
}

template <class E, class Op, int N>
std::size_t reduce_few(const Buffers& buffers, double scale, std::size_t at, std::size_t end) {
  if (buffers.copies == 1) return reduce_fixed<E, Op, N, 1>(buffers, scale, at, end);
  if (buffers.copies == N) return reduce_fixed<E, Op, N, N>(buffers, scale, at, end);
  return reduce_any<E, Op>(buffers, scale, at, end);
}

template <class E, class Op>
std::size_t reduce_vectors(const Buffers& buffers, double scale, std::size_t at, std::size_t end) {
  if constexpr (E::scales && std::is_same_v<Op, Sum>) {  // what training does all the time
    if (buffers.count == 2) return reduce_few<E, Op, 2>(buffers, scale, at, end);
    if (buffers.count == 4) return reduce_few<E, Op, 4>(buffers, scale, at, end);
    if (buffers.count == 8) return reduce_few<E, Op, 8>(buffers, scale, at, end);
  }
  return reduce_any<E, Op>(buffers, scale, at, end);
}

template <class E, class Op>
void reduce(const Buffers& buffers, double scale, std::size_t begin, std::size_t end) {
  end *= E::width;
  const std::size_t at = reduce_vectors<E, Op>(buffers, scale, begin * E::width, end);
  if (at < end) reduce_rest<E, Op>(buffers, scale, at, end - at);
}

// Wrapping sums and products are those of unsigned numbers; the order of min and max is the number's own.
template <class Ordered, class Wrapping>
void choose(const Reduction& reduction, const Buffers& buffers, std::size_t begin, std::size_t end) {
  switch (reduction.combine) {
    case Combine::sum:
      return reduce<Wrapping, Sum>(buffers, reduction.scale, begin, end);
    case Combine::product:
      return reduce<Wrapping, Product>(buffers, 1, begin, end);
    case Combine::min:
      return reduce<Ordered, Min>(buffers, 1, begin, end);
    case Combine::max:
      return reduce<Ordered, Max>(buffers, 1, begin, end);
  }
}

// ---- numbers of 16 bits as float32, and back

constexpr std::size_t kAtATime = sizeof(Floats) / sizeof(float);

template <class E>
void widen_all(const std::byte* from, std::size_t elements, float* to) {
  std::size_t at = 0;
  for (; at + kAtATime <= elements; at += kAtATime) store(to + at, E::widen(load<Vector16>(from + at * E::width)));
  if (at == elements) return;
  alignas(kBytes) std::byte padded[kAtATime * E::width] = {};
  __builtin_memcpy(padded, from + at * E::width, (elements - at) * E::width);
  const Floats rest = E::widen(load<Vector16>(padded));
  __builtin_memcpy(to + at, &rest, (elements - at) * sizeof(float));
}

template <class E>
void narrow_all(const float* from, std::size_t elements, std::byte* to) {
  std::size_t at = 0;
  for (; at + kAtATime <= elements; at += kAtATime) store(to + at * E::width, E::round(load<Floats>(from + at)));
  if (at == elements) return;
  alignas(kBytes) float padded[kAtATime] = {};
  __builtin_memcpy(padded, from + at, (elements - at) * sizeof(float));
  const Vector16 rest = E::round(load<Floats>(padded));
  __builtin_memcpy(to + at * E::width, &rest, (elements - at) * E::width);
}

}  // namespace

void LOCKSTEP_KERNEL(const Reduction& r, const Buffers& buffers, std::size_t begin, std::size_t end) {
  switch (r.element) {
    case Element::float32:
      return choose<Plain<float>, Plain<float>>(r, buffers, begin, end);
    case Element::float64:
      return choose<Plain<double>, Plain<double>>(r, buffers, begin, end);
    case Element::bfloat16:
      return choose<BFloat16, BFloat16>(r, buffers, begin, end);
    case Element::float16:
      return choose<Float16, Float16>(r, buffers, begin, end);
    case Element::int8:
      return choose<Plain<std::int8_t>, Plain<std::uint8_t>>(r, buffers, begin, end);
    case Element::uint8:
      return choose<Plain<std::uint8_t>, Plain<std::uint8_t>>(r, buffers, begin, end);
    case Element::int32:
      return choose<Plain<std::int32_t>, Plain<std::uint32_t>>(r, buffers, begin, end);
    case Element::int64:
      return choose<Plain<std::int64_t>, Plain<std::uint64_t>>(r, buffers, begin, end);
  }
}

void LOCKSTEP_WIDEN(Element element, const std::byte* from, std::size_t elements, float* to) {
  if (element == Element::bfloat16) return widen_all<BFloat16>(from, elements, to);
  widen_all<Float16>(from, elements, to);
}

void LOCKSTEP_NARROW(Element element, const float* from, std::size_t elements, std::byte* to) {
  if (element == Element::bfloat16) return narrow_all<BFloat16>(from, elements, to);
  narrow_all<Float16>(from, elements, to);
}

}  // namespace lockstep::comm
