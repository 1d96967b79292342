#pragma once

// The update kernel, written once over Vector and compiled once per instruction set
// (kernel_avx512.cpp, kernel_avx2.cpp, kernel_scalar.cpp).
//
// One loop per rule: number of slots and type of the gradients, the kind of stores and the options of the rule are
// branches in it, the same answer all the way, which cost nothing beside the memory that a step moves. So kernels do
// not multiply.

#include <xmmintrin.h>

#include <cstddef>
#include <iterator>
#include <variant>

#include "lockstep/base/tree.h"
#include "lockstep/optim/update.h"
#include "lockstep/optim/vector.h"

namespace lockstep::optim {
namespace {

// The whole range of one call.
struct Range {
  std::size_t begin;
  std::size_t end;
};

struct PlainStore {
  template <class T>
  static void put(Vector x, T* p) {
    x.store(p);
  }
};
struct StreamingStore {
  template <class T>
  static void put(Vector x, T* p) {
    x.stream(p);
  }
};

// The sum over any number of slots. By value, for the addresses of a loop's variables would keep them out of registers.
template <class T>
[[gnu::noinline]] Vector many(const void* const* gradients, int slots, std::size_t i) {
  return base::tree_sum(0, slots, [=](int slot) { return Vector::load(static_cast<const T*>(gradients[slot]) + i); });
}

// The mean gradient of the weights at one place, with its sign and scale.
struct Mean {
  Mean(const Arrays& a, float sign)
      : arrays(a), mean(Vector::all(a.mean)), scale(Vector::all(sign * a.gradient_scale)) {}

  [[gnu::always_inline]] Vector operator()(std::size_t i) const {
    const bool half = arrays.gradient_type == GradientType::bfloat16;
    const Vector g = (half ? sum<Bf16>(i) : sum<float>(i)) * mean * scale;
    if (arrays.max_value == 0) return g;
    const Vector most = Vector::all(arrays.max_value), least = Vector::all(-arrays.max_value);
    return max(least, min(most, g));
  }

 private:
  // Along the tree of base/tree.h; where the slots are few, with all of it in registers.
  template <class T>
  [[gnu::always_inline]] Vector sum(std::size_t i) const {
    switch (arrays.slots) {
      case 1:
        return few<T, 0, 1>(i);
      case 2:
        return few<T, 0, 2>(i);
      case 3:
        return few<T, 0, 3>(i);
      case 4:
        return few<T, 0, 4>(i);
      case 8:
        return few<T, 0, 8>(i);
      default:
        return many<T>(arrays.gradients, arrays.slots, i);
    }
  }

  template <class T, int Lo, int Hi>
  [[gnu::always_inline]] Vector few(std::size_t i) const {
    if constexpr (Hi - Lo == 1) {
      return gradient<T>(Lo, i);
    } else {
      constexpr int middle = Lo + base::tree_split(Hi - Lo);
      return few<T, Lo, middle>(i) + few<T, middle, Hi>(i);
    }
  }

  template <class T>
  Vector gradient(int slot, std::size_t i) const {
    return Vector::load(static_cast<const T*>(arrays.gradients[slot]) + i);
  }

  const Arrays& arrays;
  Vector mean, scale;
};

// The state of the weights at one place, as the rules ask for it.
template <class Store>
struct State {
  const Arrays& arrays;
  std::size_t i;
  Vector get(int array) const { return Vector::load(arrays.from_state[array] + i); }
  void set(int array, Vector x) const { Store::put(x, arrays.to_state[array] + i); }
};

// The running average behind the new weight w at one place.
[[gnu::always_inline]] inline Vector averaged(const Arrays& arrays, Vector w, std::size_t i) {
  if (arrays.averaging == Averaging::copy) return w;
  const Vector average = Vector::load(arrays.from_average + i);
  if (arrays.averaging == Averaging::keep) return average;
  return Vector::all(float(arrays.decay)) * average + Vector::all(float(1 - arrays.decay)) * w;
}

// What goes with the new weight w at one place.
template <class Store>
[[gnu::always_inline]] inline void put_copies(const Arrays& arrays, Vector w, std::size_t i) {
  if (arrays.to_bf16 != nullptr) Store::put(w, arrays.to_bf16 + i);
  if (arrays.to_average != nullptr) Store::put(averaged(arrays, w, i), arrays.to_average + i);
}

template <class Store, class R>
void apply(const R rule, const Arrays arrays, Range range) {
  const Mean mean(arrays, rule.maximize ? -1.0f : 1.0f);
  for (std::size_t i = range.begin; i < range.end; i += Vector::width) {
    const Vector w = rule.update(Vector::load(arrays.from_weights + i), mean(i), State<Store>{arrays, i});
    Store::put(w, arrays.to_weights + i);
    put_copies<Store>(arrays, w, i);
  }
}

template <class R>
void run(const void* numbers, const Arrays& arrays, Range range, bool streaming) {
  const R& rule = *static_cast<const R*>(numbers);
  if (!streaming) return apply<PlainStore>(rule, arrays, range);
  apply<StreamingStore>(rule, arrays, range);
  // Streaming stores are weakly ordered: they must be out before this rank votes.
  _mm_sfence();
}

// Where measuring writes nothing.
struct NoStore {
  template <class T>
  static void put(Vector, T*) {}
};

constexpr std::size_t kLanes = 16;  // whatever the width of a Vector

// One accumulator for each of the vectors that make up the lanes.
struct LaneSums {
  Squares parts[kLanes / Vector::width];
  double total() const {
    double lanes[kLanes];
    for (std::size_t part = 0; part < std::size(parts); ++part) parts[part].store(lanes + part * Vector::width);
    return base::tree_sum(0, int(kLanes), [&](int lane) { return lanes[lane]; });
  }
};

// The new state goes by `Store`, and what was measured to where the new weights will be.
template <class Store, class R>
SquareSums sums_of(const void* numbers, const Arrays& of, Range range) {
  if constexpr (NeedsNorms<R>) {
    const R rule = *static_cast<const R*>(numbers);
    const Arrays arrays = of;
    const Mean gradient(arrays, rule.maximize ? -1.0f : 1.0f);
    LaneSums weights, measured;
    for (std::size_t i = range.begin; i < range.end; i += kLanes)
      for (std::size_t part = 0; part < kLanes / Vector::width; ++part) {
        const std::size_t at = i + part * Vector::width;
        const Vector w = Vector::load(arrays.from_weights + at);
        const Vector other = rule.measured(w, gradient(at), State<Store>{arrays, at});
        Store::put(other, arrays.to_weights + at);
        weights.parts[part].add(w);
        measured.parts[part].add(other);
      }
    return {weights.total(), measured.total()};
  }
  return {};
}

template <class R>
SquareSums begin(const void* numbers, const Arrays& arrays, Range range, bool streaming) {
  if constexpr (MovesByMeasured<R>) {
    if (!streaming) return sums_of<PlainStore, R>(numbers, arrays, range);
    const SquareSums sums = sums_of<StreamingStore, R>(numbers, arrays, range);
    _mm_sfence();
    return sums;
  }
  return {};
}

template <class Store, class R>
void move_weights(const R rule, const Arrays arrays, Range range) {
  for (std::size_t i = range.begin; i < range.end; i += Vector::width) {
    const Vector w = rule.moved(Vector::load(arrays.from_weights + i), Vector::load(arrays.to_weights + i));
    w.store(arrays.to_weights + i);
    put_copies<Store>(arrays, w, i);
  }
}

template <class R>
void finish(const void* numbers, const Arrays& arrays, Range range, bool streaming) {
  if constexpr (MovesByMeasured<R>) {
    const R& rule = *static_cast<const R*>(numbers);
    if (!streaming) return move_weights<PlainStore>(rule, arrays, range);
    move_weights<StreamingStore>(rule, arrays, range);
    _mm_sfence();
  }
}

template <class List>
struct Loops;
template <class... R>
struct Loops<std::variant<R...>> {
  static constexpr void (*of_rule[])(const void*, const Arrays&, Range, bool) = {run<R>...};
  static constexpr SquareSums (*measure_of_rule[])(const void*, const Arrays&, Range) = {sums_of<NoStore, R>...};
  static constexpr SquareSums (*begin_of_rule[])(const void*, const Arrays&, Range, bool) = {begin<R>...};
  static constexpr void (*finish_of_rule[])(const void*, const Arrays&, Range, bool) = {finish<R>...};
};

}  // namespace

// Declared in kernels.h under the names that the including file makes. A number and an address rather than a Rule: an
// inline function of the standard library, as std::visit is, compiled for this instruction set could be the copy
// that the linker keeps for everybody.
void LOCKSTEP_BUILD(update)(std::size_t kind, const void* rule, const Arrays& arrays, std::size_t begin,
                            std::size_t end, bool streaming) {
  Loops<Rule>::of_rule[kind](rule, arrays, {begin, end}, streaming);
}

SquareSums LOCKSTEP_BUILD(measure)(std::size_t kind, const void* rule, const Arrays& arrays, std::size_t begin,
                                   std::size_t end) {
  return Loops<Rule>::measure_of_rule[kind](rule, arrays, {begin, end});
}

SquareSums LOCKSTEP_BUILD(begin)(std::size_t kind, const void* rule, const Arrays& arrays, std::size_t begin,
                                 std::size_t end, bool streaming) {
  return Loops<Rule>::begin_of_rule[kind](rule, arrays, {begin, end}, streaming);
}

void LOCKSTEP_BUILD(finish)(std::size_t kind, const void* rule, const Arrays& arrays, std::size_t begin,
                            std::size_t end, bool streaming) {
  Loops<Rule>::finish_of_rule[kind](rule, arrays, {begin, end}, streaming);
}

}  // namespace lockstep::optim
