#include "lockstep/comm/shm/reduce.h"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <type_traits>

#include "lockstep/base/tree.h"

namespace lockstep::comm {
namespace {

// Sums are made a block at a time so that the inner nodes of the tree stay in the first-level cache.
constexpr std::size_t kBlock = 512;

template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, c10::BFloat16>, float, T>;

template <class T>
void sum_block(const std::byte* const* inputs, int lo, int hi, std::size_t begin, std::size_t n, Accumulator<T>* out) {
  if (hi - lo == 1) {
    const T* input = reinterpret_cast<const T*>(inputs[lo]) + begin;
    for (std::size_t i = 0; i < n; ++i) out[i] = Accumulator<T>(input[i]);
    return;
  }
  const int middle = lo + base::tree_split(hi - lo);
  Accumulator<T> right[kBlock];
  sum_block<T>(inputs, lo, middle, begin, n, out);
  sum_block<T>(inputs, middle, hi, begin, n, right);
  for (std::size_t i = 0; i < n; ++i) out[i] += right[i];
}

template <class T>
void reduce(const std::byte* const* inputs, int count, std::byte* out, std::size_t elements, double scale) {
  Accumulator<T> sum[kBlock];
  for (std::size_t begin = 0; begin < elements; begin += kBlock) {
    const std::size_t n = std::min(kBlock, elements - begin);
    sum_block<T>(inputs, 0, count, begin, n, sum);
    T* result = reinterpret_cast<T*>(out) + begin;
    if constexpr (std::is_integral_v<T>) {
      std::copy_n(sum, n, result);
    } else {
      const auto factor = Accumulator<T>(scale);
      for (std::size_t i = 0; i < n; ++i) result[i] = T(sum[i] * factor);
    }
  }
}

}  // namespace

void tree_reduce(c10::ScalarType dtype, const std::byte* const* inputs, int count, std::byte* out, std::size_t elements,
                 double scale) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return reduce<float>(inputs, count, out, elements, scale);
    case c10::ScalarType::Double:
      return reduce<double>(inputs, count, out, elements, scale);
    case c10::ScalarType::BFloat16:
      return reduce<c10::BFloat16>(inputs, count, out, elements, scale);
    default:
      return reduce<std::int64_t>(inputs, count, out, elements, scale);
  }
}

}  // namespace lockstep::comm
