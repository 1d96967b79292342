#include "lockstep/nn/normalize.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace lockstep::nn {
namespace {

bool is_bf16(const at::Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16; }

template <class T>
const T* read(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}
template <class T>
T* write(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

// call(kernels of T, T{}) for the element type of `x`.
template <class Call>
void by_type(const at::Tensor& x, const Call& call) {
  if (is_bf16(x))
    call(kernels().of_bf16, Bf16{});
  else
    call(kernels().of_float, float{});
}

// For ranges whose parts are written each by one thread.
template <class Body>
void in_parts(std::size_t count, std::size_t values, const Body& body) {
  constexpr std::size_t kValues = 1 << 15;  // worth a thread
  const std::size_t each = std::max<std::size_t>(1, values / count), grain = std::max<std::size_t>(1, kValues / each);
  at::parallel_for(0, std::int64_t(count), std::int64_t(grain),
                   [&](std::int64_t begin, std::int64_t end) { body(std::size_t(begin), std::size_t(end)); });
}

std::size_t ranges_of(const Planes& planes) {
  return planes.inner == 1 ? planes.outer : planes.outer * planes.channels;
}

std::size_t values_of(const Planes& planes) { return planes.outer * planes.channels * planes.inner; }

at::Tensor doubles(std::size_t rows, std::size_t channels) {
  return at::zeros({std::int64_t(rows), std::int64_t(channels)}, at::kDouble);
}

// Chunk by chunk, then joined in their order.
void find_moments(const Pictures& pictures, double* mean, double* squares) {
  const std::size_t channels = pictures.planes.channels, chunks = chunks_of(pictures.planes);
  const at::Tensor memory = doubles(2 * chunks, channels);
  std::vector<Moments> found;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    double* const begin = write<double>(memory) + 2 * chunk * channels;
    found.push_back({0, begin, begin + channels});
  }
  by_type(pictures.tensor, [&](const auto& kernel, auto type) {
    using T = decltype(type);
    at::parallel_for(0, std::int64_t(chunks), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto chunk = std::size_t(begin); chunk < std::size_t(end); ++chunk)
        kernel.moments(pictures.planes, read<T>(pictures.tensor), chunk, chunks, found[chunk]);
    });
  });
  Moments all{0, mean, squares};
  for (const Moments& one : found) kernels().join(all, one, channels);
}

// scale and shift of the channels in `by.moments`.
void set_affine(Normalization& by, const NormTensors& layer) {
  const std::int64_t channels = by.moments.size(1);
  by.affine = at::empty({2, channels}, at::kFloat);
  const double *const mean = read<double>(by.moments), *const inverse = mean + channels;
  const float *const weight = read<float>(layer.weight), *const bias = read<float>(layer.bias);
  auto *const scale = write<float>(by.affine), *const shift = scale + channels;
  for (std::int64_t c = 0; c < channels; ++c) {
    const double factor = inverse[c] * (weight == nullptr ? 1 : double(weight[c]));
    scale[c] = float(factor);
    // What rounding has made of the scale is a part of what the mean is multiplied with.
    shift[c] = float((bias == nullptr ? 0 : double(bias[c])) - mean[c] * double(scale[c]));
  }
}

Affine affine_of(const Normalization& by) {
  const auto* const scale = read<float>(by.affine);
  return {scale, scale + by.affine.size(1)};
}

void move_running(const at::Tensor& running, const double* to, std::int64_t channels, double momentum, double factor) {
  auto* const values = write<float>(running);
  for (std::int64_t c = 0; values != nullptr && c < channels; ++c)
    values[c] = float(momentum * (to[c] * factor) + (1 - momentum) * double(values[c]));
}

// What backward asks of the sums, by channel in float32: mean, middle and slope of InputGradient.
struct Slopes {
  at::Tensor memory;
  InputGradient by;
};

Slopes slopes_of(const Normalization& by, const at::Tensor& sums) {
  const std::int64_t channels = sums.size(1);
  Slopes slopes{at::empty({3, channels}, at::kFloat), {}};
  auto *const mean = write<float>(slopes.memory), *const middle = mean + channels, *const slope = middle + channels;
  const auto *const moments = read<double>(by.moments), *const plain = read<double>(sums);
  for (std::int64_t c = 0; c < channels; ++c) {
    const double inverse = moments[channels + c];
    mean[c] = float(moments[c]);
    middle[c] = float(plain[c] / by.count);
    slope[c] = float(plain[channels + c] * inverse * inverse / by.count);
  }
  slopes.by = {mean, middle, slope, affine_of(by).scale};
  return slopes;
}

// Of pictures x, or of the values that pooling left of them: float64 [2, C]. `output` and `cut` as the kernel's.
at::Tensor find_gradient_sums(const Planes& planes, const at::Tensor& x, const Normalization& by, const Slopes& means,
                              const at::Tensor& dy, const at::Tensor& output, const at::Tensor& cut) {
  const std::size_t channels = planes.channels, chunks = chunks_of(planes);
  const at::Tensor memory = doubles(2 * chunks, channels);
  by_type(x, [&](const auto& kernel, auto type) {
    using T = decltype(type);
    at::parallel_for(0, std::int64_t(chunks), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto chunk = std::size_t(begin); chunk < std::size_t(end); ++chunk) {
        double* const plain = write<double>(memory) + 2 * chunk * channels;
        kernel.gradient_sums(planes, read<T>(x), read<T>(dy), read<T>(output), write<T>(cut), affine_of(by),
                             means.by.mean, chunk, chunks, {plain, plain + channels});
      }
    });
  });
  at::Tensor sums = doubles(2, channels);
  auto* const all = write<double>(sums);
  for (std::size_t chunk = 0; chunk < chunks; ++chunk)
    for (std::size_t i = 0; i < 2 * channels; ++i) all[i] += read<double>(memory)[2 * chunk * channels + i];
  return sums;
}

// The means alone, for the sums.
Slopes means_of(const Normalization& by) { return slopes_of(by, doubles(2, std::size_t(by.moments.size(1)))); }

void set_parameter_gradients(NormGradients& found, const Normalization& by, const at::Tensor& sums) {
  found.weight = (sums[1] * by.moments[1]).to(at::kFloat);
  found.bias = sums[0].to(at::kFloat);
}

NormGradients gradients_behind_relu(const Pictures& x, const Normalization& by, const at::Tensor& dy,
                                    const at::Tensor& output) {
  const at::Tensor gradient = dy.contiguous(x.format);
  NormGradients found;
  if (output.defined()) found.added = at::empty_like(x.tensor);
  const at::Tensor sums = find_gradient_sums(x.planes, x.tensor, by, means_of(by), gradient, output, found.added);
  set_parameter_gradients(found, by, sums);
  const Slopes slopes = slopes_of(by, sums);
  found.x = at::empty_like(x.tensor);
  by_type(x.tensor, [&](const auto& kernel, auto type) {
    using T = decltype(type);
    const T* const from = read<T>(output.defined() ? found.added : gradient);
    in_parts(ranges_of(x.planes), values_of(x.planes), [&](std::size_t begin, std::size_t end) {
      kernel.input_gradient(x.planes, read<T>(x.tensor), from, output.defined(), affine_of(by), slopes.by,
                            write<T>(found.x), begin, end);
    });
  });
  return found;
}

PooledShape pooled_shape(const at::Tensor& pictures, Pooling pooling) {
  const auto height = std::size_t(pictures.size(2)), width = std::size_t(pictures.size(3));
  const auto left = [&](std::size_t size) { return pooling == Pooling::halving ? size / 2 : (size + 1) / 2; };
  return {height, width, left(height), left(width)};
}

}  // namespace

bool is_channels_last(const at::Tensor& pictures) {
  return pictures.is_contiguous(at::MemoryFormat::ChannelsLast) && !pictures.is_contiguous();
}

Pictures dense_pictures(const at::Tensor& tensor) {
  Pictures pictures{tensor.contiguous(tensor.suggest_memory_format()), {}, at::MemoryFormat::Contiguous};
  const auto size = [&](int dim) { return std::size_t(tensor.size(dim)); };
  if (pictures.tensor.is_contiguous() && size(2) * size(3) != 1) {
    pictures.planes = {size(0), size(1), size(2) * size(3)};
  } else {
    pictures.planes = {size(0) * size(2) * size(3), size(1), 1};
    if (!pictures.tensor.is_contiguous()) pictures.format = at::MemoryFormat::ChannelsLast;
  }
  return pictures;
}

Normalization normalization_of(const Pictures& pictures, const NormTensors& layer, double momentum, double eps) {
  const auto channels = std::int64_t(pictures.planes.channels);
  Normalization by{double(pictures.planes.outer * pictures.planes.inner), doubles(2, pictures.planes.channels), {}};
  auto *const mean = write<double>(by.moments), *const squares = mean + channels;
  find_moments(pictures, mean, squares);
  move_running(layer.running_mean, mean, channels, momentum, 1);
  move_running(layer.running_var, squares, channels, momentum, 1 / (by.count - 1));
  for (std::int64_t c = 0; c < channels; ++c) squares[c] = 1 / std::sqrt(squares[c] / by.count + eps);
  set_affine(by, layer);
  return by;
}

Normalization running_normalization(const NormTensors& layer, double eps) {
  const std::int64_t channels = layer.running_mean.size(0);
  Normalization by{0, doubles(2, std::size_t(channels)), {}};
  auto* const moments = write<double>(by.moments);
  for (std::int64_t c = 0; c < channels; ++c) {
    moments[c] = double(read<float>(layer.running_mean)[c]);
    moments[channels + c] = 1 / std::sqrt(double(read<float>(layer.running_var)[c]) + eps);
  }
  set_affine(by, layer);
  return by;
}

at::Tensor normalized_relu(const Pictures& x, const Normalization& by, const at::Tensor& added) {
  at::Tensor y = at::empty_like(x.tensor);
  const at::Tensor dense = added.defined() ? added.contiguous(x.format) : added;
  by_type(x.tensor, [&](const auto& kernel, auto type) {
    using T = decltype(type);
    in_parts(ranges_of(x.planes), values_of(x.planes), [&](std::size_t begin, std::size_t end) {
      kernel.apply(x.planes, read<T>(x.tensor), read<T>(dense), affine_of(by), write<T>(y), begin, end);
    });
  });
  return y;
}

Pooled normalized_relu_pool(const Pictures& x, const Normalization& by, Pooling pooling) {
  const PooledShape shape = pooled_shape(x.tensor, pooling);
  const std::int64_t sizes[] = {x.tensor.size(0), x.tensor.size(1), std::int64_t(shape.out_height),
                                std::int64_t(shape.out_width)};
  const auto fresh = [&](at::ScalarType type) { return at::empty(sizes, type, {}, {}, {}, x.format); };
  Pooled found{fresh(x.tensor.scalar_type()), fresh(x.tensor.scalar_type()), fresh(at::kByte)};
  by_type(x.tensor, [&](const auto& kernel, auto type) {
    using T = decltype(type);
    in_parts(std::size_t(x.tensor.size(0)), values_of(x.planes), [&](std::size_t begin, std::size_t end) {
      kernel.pool(x.planes, shape, pooling, read<T>(x.tensor), affine_of(by), write<T>(found.y), write<T>(found.from),
                  write<std::uint8_t>(found.places), begin, end);
    });
  });
  return found;
}

NormGradients relu_gradients(const Pictures& x, const Normalization& by, const at::Tensor& dy) {
  return gradients_behind_relu(x, by, dy, {});
}

NormGradients added_relu_gradients(const Pictures& x, const Normalization& by, const at::Tensor& dy,
                                   const at::Tensor& output) {
  return gradients_behind_relu(x, by, dy, output.contiguous(x.format));
}

NormGradients pool_gradients(const Pictures& x, const Normalization& by, const at::Tensor& dy, Pooling pooling,
                             const Pooled& forward) {
  const PooledShape shape = pooled_shape(x.tensor, pooling);
  const at::Tensor gradient = dy.contiguous(x.format);
  const std::size_t small = shape.out_height * shape.out_width, pictures = std::size_t(x.tensor.size(0));
  const Planes left{pictures * small, x.planes.channels, 1};
  const at::Tensor sums = find_gradient_sums(left, forward.from, by, means_of(by), gradient, {}, {});
  NormGradients found;
  set_parameter_gradients(found, by, sums);
  const Slopes slopes = slopes_of(by, sums);
  found.x = at::empty_like(x.tensor);
  by_type(x.tensor, [&](const auto& kernel, auto type) {
    using T = decltype(type);
    in_parts(pictures, values_of(x.planes), [&](std::size_t begin, std::size_t end) {
      kernel.pool_input_gradient(x.planes, shape, pooling, read<T>(x.tensor), read<T>(gradient),
                                 read<std::uint8_t>(forward.places), slopes.by, write<T>(found.x), begin, end);
    });
  });
  return found;
}

}  // namespace lockstep::nn
