#pragma once

// The update kernel, written once over Vector and compiled once per instruction set
// (kernel_avx512.cpp, kernel_avx2.cpp, kernel_scalar.cpp).

#include <xmmintrin.h>

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

// The new weight, and its copy where there is one: the same answer all the way, so the branch costs nothing.
template <class Store>
void put_weight(Vector w, const Arrays& a, std::size_t i) {
  Store::put(w, a.to_weights + i);
  if (a.to_bf16 != nullptr) Store::put(w, a.to_bf16 + i);
}

// The mean gradient where the number of slots is known to the compiler: the whole tree in registers.
template <class T, int Slots>
struct FixedMean {
  explicit FixedMean(const Arrays& arrays) : mean(Vector::all(arrays.mean)), clip(Vector::all(arrays.gradient_scale)) {
    for (int slot = 0; slot < Slots; ++slot) gradients[slot] = static_cast<const T*>(arrays.gradients[slot]);
  }
  Vector operator()(std::size_t i) const { return sum<0, Slots>(i) * mean * clip; }

  template <int Lo, int Hi>
  Vector sum(std::size_t i) const {
    if constexpr (Hi - Lo == 1) {
      return Vector::load(gradients[Lo] + i);
    } else {
      constexpr int middle = Lo + base::tree_split(Hi - Lo);
      return sum<Lo, middle>(i) + sum<middle, Hi>(i);
    }
  }

  const T* gradients[Slots];
  Vector mean, clip;
};

// The same for any number of slots.
template <class T>
struct AnyMean {
  explicit AnyMean(const Arrays& arrays)
      : gradients(arrays.gradients),
        slots(arrays.slots),
        mean(Vector::all(arrays.mean)),
        clip(Vector::all(arrays.gradient_scale)) {}
  Vector operator()(std::size_t i) const {
    const auto gradient = [&](int slot) { return Vector::load(static_cast<const T*>(gradients[slot]) + i); };
    return base::tree_sum(0, slots, gradient) * mean * clip;
  }

  const void* const* gradients;
  int slots;
  Vector mean, clip;
};

template <bool Momentum, bool Decay>
struct SGDKernel {
  explicit SGDKernel(const SGDRule& rule)
      : negative_lr(Vector::all(rule.negative_lr)),
        momentum(Vector::all(rule.momentum)),
        gradient_weight(Vector::all(rule.gradient_weight)),
        decay(Vector::all(rule.weight_decay)),
        nesterov(rule.nesterov),
        first(rule.first) {}

  template <class Store>
  void apply(const Arrays& a, std::size_t i, Vector g) const {
    const Vector w = Vector::load(a.from_weights + i);
    if constexpr (Decay) g = fma(w, decay, g);
    if constexpr (Momentum) {
      const Vector m = first ? g : fma(g, gradient_weight, Vector::load(a.from_state[0] + i) * momentum);
      Store::put(m, a.to_state[0] + i);
      g = nesterov ? fma(m, momentum, g) : m;
    }
    put_weight<Store>(fma(g, negative_lr, w), a, i);
  }

  Vector negative_lr, momentum, gradient_weight, decay;
  bool nesterov, first;
};

template <bool Decay>
struct AdamKernel {
  explicit AdamKernel(const AdamRule& rule)
      : decoupled(Vector::all(rule.decoupled_decay)),
        decay(Vector::all(rule.weight_decay)),
        lerp(Vector::all(rule.lerp)),
        beta2(Vector::all(rule.beta2)),
        square_weight(Vector::all(rule.one_minus_beta2)),
        correction(Vector::all(rule.bias_correction2_sqrt)),
        eps(Vector::all(rule.eps)),
        negative_step(Vector::all(rule.negative_step_size)),
        lerp_from_gradient(rule.lerp_from_gradient) {}

  template <class Store>
  void apply(const Arrays& a, std::size_t i, Vector g) const {
    Vector w = Vector::load(a.from_weights + i);
    w = w * decoupled;
    if constexpr (Decay) g = fma(w, decay, g);
    const Vector m0 = Vector::load(a.from_state[0] + i);
    const Vector m = fma(lerp, g - m0, lerp_from_gradient ? g : m0);
    const Vector v = fma(square_weight * g, g, Vector::load(a.from_state[1] + i) * beta2);
    Store::put(m, a.to_state[0] + i);
    Store::put(v, a.to_state[1] + i);
    const Vector denominator = sqrt(v) / correction + eps;
    put_weight<Store>(w + negative_step * m / denominator, a, i);
  }

  Vector decoupled, decay, lerp, beta2, square_weight, correction, eps, negative_step;
  bool lerp_from_gradient;
};

template <class Store, class Mean, class Kernel>
void run(const Kernel kernel, const Mean mean, const Arrays arrays, Range range) {
  for (std::size_t i = range.begin; i < range.end; i += Vector::width) kernel.template apply<Store>(arrays, i, mean(i));
}

template <class Store, class T, class Kernel>
void run_slots(const Kernel& kernel, const Arrays& arrays, Range range) {
  switch (arrays.slots) {
    case 1:
      return run<Store>(kernel, FixedMean<T, 1>(arrays), arrays, range);
    case 2:
      return run<Store>(kernel, FixedMean<T, 2>(arrays), arrays, range);
    case 3:
      return run<Store>(kernel, FixedMean<T, 3>(arrays), arrays, range);
    case 4:
      return run<Store>(kernel, FixedMean<T, 4>(arrays), arrays, range);
    case 8:
      return run<Store>(kernel, FixedMean<T, 8>(arrays), arrays, range);
    default:
      return run<Store>(kernel, AnyMean<T>(arrays), arrays, range);
  }
}

template <class Store, class Kernel>
void run_type(const Kernel& kernel, const Arrays& arrays, Range range) {
  if (arrays.gradient_type == GradientType::bfloat16) return run_slots<Store, Bf16>(kernel, arrays, range);
  run_slots<Store, float>(kernel, arrays, range);
}

template <class Kernel>
void run_stores(const Kernel& kernel, const Arrays& arrays, Range range, bool streaming) {
  if (!streaming) return run_type<PlainStore>(kernel, arrays, range);
  run_type<StreamingStore>(kernel, arrays, range);
  // Streaming stores are weakly ordered: they must be out before this rank votes.
  _mm_sfence();
}

void run_rule(const SGDRule& rule, const Arrays& arrays, Range range, bool streaming) {
  const bool momentum = rule.momentum != 0;
  const bool decay = rule.weight_decay != 0;
  if (momentum && decay) return run_stores(SGDKernel<true, true>(rule), arrays, range, streaming);
  if (momentum) return run_stores(SGDKernel<true, false>(rule), arrays, range, streaming);
  if (decay) return run_stores(SGDKernel<false, true>(rule), arrays, range, streaming);
  run_stores(SGDKernel<false, false>(rule), arrays, range, streaming);
}

void run_rule(const AdamRule& rule, const Arrays& arrays, Range range, bool streaming) {
  if (rule.weight_decay != 0) return run_stores(AdamKernel<true>(rule), arrays, range, streaming);
  run_stores(AdamKernel<false>(rule), arrays, range, streaming);
}

}  // namespace

// Declared in kernels.h under the name that the including file defines. No std::visit here: an
// inline function of the standard library compiled for this instruction set could be the copy
// that the linker keeps for everybody.
void LOCKSTEP_KERNEL(const SGDRule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, bool streaming) {
  run_rule(rule, arrays, {begin, end}, streaming);
}
void LOCKSTEP_KERNEL(const AdamRule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, bool streaming) {
  run_rule(rule, arrays, {begin, end}, streaming);
}

}  // namespace lockstep::optim
