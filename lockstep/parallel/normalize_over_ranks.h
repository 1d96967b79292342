#pragma once

// Batch normalisation over the ranks of a group as a function; sync_batch_norm.h has the layers that call it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "lockstep/comm/group.h"

namespace lockstep::parallel {

/// A layer's tensors, any of which may be undefined, and numbers, as at::batch_norm has them.
struct BatchNormState {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
  double momentum = 0.1;
  double eps = 1e-5;
};

/// at::batch_norm in training mode on the batches of all ranks; `channels` is what the layer was made for. Collective.
/// Within a join() on the group ranks without inputs are told, and take part by the functions below. sync_batch_norm.h
/// has inputs and errors.
at::Tensor normalize_over_ranks(const std::shared_ptr<comm::Group>& group, std::int64_t channels,
                                const at::Tensor& input, const BatchNormState& state);

/// Collective: what a rank with an empty batch does in the forward of a layer of so many channels, and in its backward.
void normalize_without_inputs(comm::Group& group, std::int64_t channels);
void normalize_backward_without_inputs(comm::Group& group, std::int64_t channels);

}  // namespace lockstep::parallel
