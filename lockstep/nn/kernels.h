#pragma once

// The arithmetic of the fused layers over plain memory, apart from tensors and threads. Torch-free.
//
// A picture tensor is `outer` times, of each channel, `inner` values: channels-last is inner = 1 with the pixels of all
// pictures for `outer`, plain is inner = height · width with the pictures for `outer`.
//
// Sums go by chunks, whose bounds depend on the shape alone: within a block of a few kilobytes in float32, over blocks
// and chunks in float64, in a fixed order. So neither threads nor the instruction set (LOCKSTEP_ISA) change a bit.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/nn/pooling.h"

namespace lockstep::nn {

using Bf16 = std::uint16_t;  ///< the upper half of a float32

struct Planes {
  std::size_t outer = 0;
  std::size_t channels = 0;
  std::size_t inner = 1;
};

/// How many chunks the sums of `planes` are cut into, 1 to 64.
std::size_t chunks_of(const Planes& planes);

/// What the values of a channel are, over one chunk or all of them. Arrays by channel.
struct Moments {
  double count = 0;  ///< values per channel
  double* mean = nullptr;
  double* squares_around = nullptr;  ///< sums of squared distances to the mean
};

/// y = x · scale + shift, by channel. What follows it is a ReLU.
struct Affine {
  const float* scale = nullptr;
  const float* shift = nullptr;
};

/// The sums that backward needs, by channel, over one chunk or all of them: of the gradient behind the ReLU, and of
/// its products with x - mean.
struct GradientSums {
  double* plain = nullptr;
  double* products = nullptr;
};

/// dx = (g - middle - (x - mean) · slope) · scale, by channel.
struct InputGradient {
  const float* mean = nullptr;
  const float* middle = nullptr;
  const float* slope = nullptr;
  const float* scale = nullptr;
};

struct PooledShape {
  std::size_t height = 0, width = 0;          ///< of the pictures
  std::size_t out_height = 0, out_width = 0;  ///< what is left of them
};

/// An index that is no place of a window: the ReLU has cut all of it off.
inline constexpr std::uint8_t kCutOff = 255;

/// One element type by one instruction set. Ranges of `apply` and `input_gradient` are rows of channels (inner = 1) or
/// planes, those of `pool` and `pool_input_gradient` pictures.
template <class T>
struct KernelsOf {
  /// Of chunk `chunk` of `chunks`; `found` comes with zeros.
  void (*moments)(const Planes&, const T* x, std::size_t chunk, std::size_t chunks, Moments& found);
  /// y = relu(x · scale + shift + added); `added` may be null.
  void (*apply)(const Planes&, const T* x, const T* added, Affine, T* y, std::size_t begin, std::size_t end);
  /// The gradient behind the ReLU is dy where x · scale + shift is above zero. `cut` where the ReLU had another input:
  /// then it is dy where `output` is above zero, which is also written to `cut`.
  void (*gradient_sums)(const Planes&, const T* x, const T* dy, const T* output, T* cut, Affine, const float* mean,
                        std::size_t chunk, std::size_t chunks, const GradientSums& found);
  /// `cut`: dy has passed the ReLU.
  void (*input_gradient)(const Planes&, const T* x, const T* dy, bool cut, Affine, InputGradient, T* dx,
                         std::size_t begin, std::size_t end);
  /// The largest of each window behind the ReLU (y), which value of x that was (from) and where in its window (places,
  /// or kCutOff). `planes` is that of x, of rows of channels (inner = 1); y, from and places are, too.
  void (*pool)(const Planes&, const PooledShape&, Pooling, const T* x, Affine, T* y, T* from, std::uint8_t* places,
               std::size_t begin, std::size_t end);
  void (*pool_input_gradient)(const Planes&, const PooledShape&, Pooling, const T* x, const T* dy,
                              const std::uint8_t* places, InputGradient, T* dx, std::size_t begin, std::size_t end);
};

struct Kernels {
  KernelsOf<float> of_float;
  KernelsOf<Bf16> of_bf16;
  /// Adds the values of `more` to those of `all`. Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for
  /// Computing Sample Variances".
  void (*join)(Moments& all, const Moments& more, std::size_t channels);
};

extern const Kernels kKernelsAvx512, kKernelsAvx2, kKernelsScalar;

/// Those of this machine. UsageError for a LOCKSTEP_ISA that it does not offer.
const Kernels& kernels();

/// The instruction sets of this machine, best first, and the kernels of one of them.
std::vector<const char*> kernel_builds();
const Kernels& kernels_by(const char* build);

}  // namespace lockstep::nn
