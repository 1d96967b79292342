// The kernels of one instruction set; a kernel_*.cpp file defines LOCKSTEP_KERNELS and includes it. Inline functions of
// the standard library are not used: compiled for this instruction set they could be the copy that the linker keeps for
// everybody.

#include "lockstep/nn/kernel_pool.h"
#include "lockstep/nn/kernel_sums.h"

namespace lockstep::nn {
namespace {

template <class T>
void apply(const Planes& planes, const T* x, const T* added, Affine affine, T* y, std::size_t begin, std::size_t end) {
  const auto affine_at = [&](std::size_t offset, auto lanes, auto channel) __attribute__((always_inline)) {
    return lanes.get(x + offset) * channel.of(affine.scale, lanes) + channel.of(affine.shift, lanes);
  };
  if (added == nullptr)
    for_values(
        planes, begin, end, [&](std::size_t offset, auto lanes, auto channel) __attribute__((always_inline)) {
          const Floats z = affine_at(offset, lanes, channel);
          lanes.put(y + offset, behind_relu(z, z));
        });
  else
    for_values(
        planes, begin, end, [&](std::size_t offset, auto lanes, auto channel) __attribute__((always_inline)) {
          const Floats z = affine_at(offset, lanes, channel) + lanes.get(added + offset);
          lanes.put(y + offset, behind_relu(z, z));
        });
}

template <class T>
void input_gradient(const Planes& planes, const T* x, const T* dy, bool cut, Affine affine, InputGradient by, T* dx,
                    std::size_t begin, std::size_t end) {
  for_values(
      planes, begin, end, [&](std::size_t offset, auto lanes, auto channel) __attribute__((always_inline)) {
        const Floats value = lanes.get(x + offset);
        Floats g = lanes.get(dy + offset);
        if (!cut) g = behind_relu(value * channel.of(affine.scale, lanes) + channel.of(affine.shift, lanes), g);
        const Floats distance = value - channel.of(by.mean, lanes);
        lanes.put(dx + offset, (g - channel.of(by.middle, lanes) - distance * channel.of(by.slope, lanes)) *
                                   channel.of(by.scale, lanes));
      });
}

void join(Moments& all, const Moments& more, std::size_t channels) {
  if (more.count == 0) return;
  for (std::size_t c = 0; c < channels; ++c)
    add_block(all.count, more.count, more.mean[c], 0, more.squares_around[c], all.mean[c], all.squares_around[c]);
  all.count += more.count;
}

template <class T>
constexpr KernelsOf<T> kOf = {moments<T>,        apply<T>, gradient_sums<T>,
                              input_gradient<T>, pool<T>,  pool_input_gradient<T>};

}  // namespace

extern const Kernels LOCKSTEP_KERNELS = {kOf<float>, kOf<Bf16>, join};

}  // namespace lockstep::nn
