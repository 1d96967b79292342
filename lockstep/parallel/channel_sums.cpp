#include "lockstep/parallel/channel_sums.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace lockstep::parallel {
namespace {

// Dense memory by channels: `outer` times, of each channel `inner` values. Channels-last is inner = 1.
struct ChannelPlanes {
  std::int64_t outer = 0;
  std::int64_t channels = 0;
  std::int64_t inner = 1;
};

ChannelPlanes planes_of(const at::Tensor& dense) {
  const std::int64_t channels = dense.size(1);
  const std::int64_t each = channels == 0 ? 0 : dense.numel() / channels;
  if (!dense.is_contiguous() || dense.dim() == 2) return {each, channels, 1};
  const std::int64_t outer = dense.size(0);
  return {outer, channels, outer == 0 ? 0 : each / outer};
}

// sums[c] becomes the sum of term(i, c) over the places i of channel c. A plane has eight sums, which the compiler puts
// into vectors; where channels lie side by side, they do.
template <class Term>
void sum_by_channel(const ChannelPlanes& planes, double* sums, const Term& term) {
  constexpr std::int64_t kLanes = 8;
  std::fill(sums, sums + planes.channels, 0.0);
  if (planes.inner == 1) {
    for (std::int64_t n = 0; n < planes.outer; ++n)
      for (std::int64_t c = 0; c < planes.channels; ++c) sums[c] += term(n * planes.channels + c, c);
    return;
  }
  for (std::int64_t c = 0; c < planes.channels; ++c) {
    double lanes[kLanes] = {};
    for (std::int64_t n = 0; n < planes.outer; ++n) {
      const std::int64_t first = (n * planes.channels + c) * planes.inner;
      std::int64_t i = 0;
      for (; i + kLanes <= planes.inner; i += kLanes)
        for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(first + i + lane, c);
      for (; i < planes.inner; ++i) lanes[0] += term(first + i, c);
    }
    sums[c] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
}

at::Tensor doubles(at::IntArrayRef sizes) { return at::zeros(sizes, at::kDouble); }

}  // namespace

at::Tensor dense_by_channel(const at::Tensor& tensor) { return tensor.contiguous(tensor.suggest_memory_format()); }

ChannelMoments channel_moments(const at::Tensor& input) {
  const ChannelPlanes planes = planes_of(input);
  ChannelMoments moments{planes.outer * planes.inner, doubles({planes.channels}), doubles({planes.channels})};
  if (moments.count == 0) return moments;
  double* const mean = moments.mean.mutable_data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, input.scalar_type(), "channel_moments", [&] {
    const scalar_t* const x = input.const_data_ptr<scalar_t>();
    sum_by_channel(planes, mean, [x](std::int64_t i, std::int64_t) { return double(x[i]); });
    for (std::int64_t c = 0; c < planes.channels; ++c) mean[c] /= double(moments.count);
    sum_by_channel(planes, moments.squares_around.mutable_data_ptr<double>(),
                   [x, mean](std::int64_t i, std::int64_t c) {
                     const double distance = double(x[i]) - mean[c];
                     return distance * distance;
                   });
  });
  return moments;
}

at::Tensor packed(const ChannelMoments& moments) {
  return at::cat({at::full({1}, double(moments.count), at::kDouble), moments.mean, moments.squares_around});
}

ChannelMoments joined(const std::vector<at::Tensor>& of_ranks) {
  const std::int64_t channels = (of_ranks.front().numel() - 1) / 2;
  ChannelMoments all{0, doubles({channels}), doubles({channels})};
  double* const mean = all.mean.mutable_data_ptr<double>();
  double* const squares = all.squares_around.mutable_data_ptr<double>();
  for (const at::Tensor& told : of_ranks) {
    const double* const of_rank = told.const_data_ptr<double>();
    const double count = of_rank[0];
    if (count == 0) continue;
    const double before = double(all.count);
    all.count += std::int64_t(count);
    for (std::int64_t c = 0; c < channels; ++c) {
      const double distance = of_rank[1 + c] - mean[c];
      mean[c] += distance * (count / double(all.count));
      squares[c] += of_rank[1 + channels + c] + distance * distance * (before * count / double(all.count));
    }
  }
  return all;
}

at::Tensor gradient_sums(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean) {
  const ChannelPlanes planes = planes_of(input);
  at::Tensor sums = doubles({2, planes.channels});
  double* const plain = sums.mutable_data_ptr<double>();
  const double* const middle = mean.const_data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, input.scalar_type(), "gradient_sums", [&] {
    const scalar_t* const x = input.const_data_ptr<scalar_t>();
    const scalar_t* const dy = gradient.const_data_ptr<scalar_t>();
    sum_by_channel(planes, plain, [dy](std::int64_t i, std::int64_t) { return double(dy[i]); });
    sum_by_channel(planes, plain + planes.channels, [x, dy, middle](std::int64_t i, std::int64_t c) {
      return double(dy[i]) * (double(x[i]) - middle[c]);
    });
  });
  return sums;
}

at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                          const InputGradient& by_channel) {
  const ChannelPlanes planes = planes_of(input);
  at::Tensor result = at::empty_like(input);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, input.scalar_type(), "input_gradient", [&] {
    using Math = at::opmath_type<scalar_t>;
    const auto in_math = [](const at::Tensor& tensor) { return tensor.to(c10::CppTypeToScalarType<Math>::value); };
    const at::Tensor all[] = {in_math(mean), in_math(by_channel.shift), in_math(by_channel.slope),
                              in_math(by_channel.scale)};
    const Math* const middle = all[0].const_data_ptr<Math>();
    const Math* const shift = all[1].const_data_ptr<Math>();
    const Math* const slope = all[2].const_data_ptr<Math>();
    const Math* const scale = all[3].const_data_ptr<Math>();
    const scalar_t* const x = input.const_data_ptr<scalar_t>();
    const scalar_t* const dy = gradient.const_data_ptr<scalar_t>();
    scalar_t* const dx = result.mutable_data_ptr<scalar_t>();
    for (std::int64_t n = 0, i = 0; n < planes.outer; ++n) {
      for (std::int64_t c = 0; planes.inner == 1 && c < planes.channels; ++c, ++i)
        dx[i] = scalar_t((Math(dy[i]) - shift[c] - (Math(x[i]) - middle[c]) * slope[c]) * scale[c]);
      for (std::int64_t c = 0; planes.inner != 1 && c < planes.channels; ++c)
        for (const std::int64_t end = i + planes.inner; i < end; ++i)
          dx[i] = scalar_t((Math(dy[i]) - shift[c] - (Math(x[i]) - middle[c]) * slope[c]) * scale[c]);
    }
  });
  return result;
}

}  // namespace lockstep::parallel
