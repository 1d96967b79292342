#pragma once

// The arithmetic of batch normalisation over several ranks: sums by channel (dimension 1) of one rank's batch, and what
// follows from the sums of all. Sums are made in double, each in a fixed order on the calling thread, so the number of
// computing threads changes no bit. Tensors are on the CPU, of float, double, bfloat16 or half.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::parallel {

/// How the values of a batch are distributed, by channel. Doubles of size [channels].
struct ChannelMoments {
  std::int64_t count = 0;     ///< values per channel
  at::Tensor mean;            ///< zero where there are no values
  at::Tensor squares_around;  ///< the sum of squared distances from the mean
};

/// Of one rank's `input` [samples, channels, ...], whose memory is dense (see dense_by_channel); it may be empty.
ChannelMoments channel_moments(const at::Tensor& input);

/// What a rank tells the others: 2 * channels + 1 doubles; and what one rank knows when all have told theirs, added in
/// the order of the list (Chan, Golub, LeVeque 1979).
at::Tensor packed(const ChannelMoments& moments);
ChannelMoments joined(const std::vector<at::Tensor>& of_ranks);

/// `tensor`, or a copy of it that is contiguous, in channels-last order if its strides say so.
at::Tensor dense_by_channel(const at::Tensor& tensor);

/// Doubles of size [2, channels]: the sums of `gradient`, and of `gradient` times the distance of `input` from `mean`.
/// Both tensors have the same sizes and strides, dense.
at::Tensor gradient_sums(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean);

/// By channel, doubles of size [channels]: what is subtracted from a gradient, by how much of the distance from the
/// mean it is corrected, what it is multiplied by.
struct InputGradient {
  at::Tensor shift;
  at::Tensor slope;
  at::Tensor scale;
};

/// (gradient - shift - (input - mean) * slope) * scale, in float (double for doubles), rounded once; dense as `input`.
at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                          const InputGradient& by_channel);

}  // namespace lockstep::parallel
