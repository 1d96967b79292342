#pragma once

// Batch normalisation over the ranks of a group where the batches are on devices (normalize_over_ranks.h calls it): by
// the parts that libtorch has for it, as torch.nn.SyncBatchNorm is made of them. The host waits for nothing here, but
// where the group does, and on a rank with at most one value per channel, which asks what the others have.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/normalize_over_ranks.h"

namespace lockstep::parallel {

/// What a rank without inputs has to know of a layer, to send what the others do.
struct DeviceNorm {
  std::int64_t channels = 0;
  bool is_double = false;  ///< what statistics are in: double for doubles, else float

  /// As one number, and back.
  std::int64_t number() const { return 2 * channels + (is_double ? 1 : 0); }
  static DeviceNorm of_number(std::int64_t number) { return {number / 2, number % 2 == 1}; }
};

/// normalize_over_ranks() for an `input` that was checked. All ranks have theirs on devices, in one dtype; float16 and
/// bfloat16 may be mixed with float.
at::Tensor normalize_on_device(const std::shared_ptr<comm::Group>& group, const at::Tensor& input,
                               const BatchNormState& state);

/// Collective: what a rank with an empty batch does in the forward of such a layer, and in its backward; by tensors on
/// `device`.
void normalize_without_inputs(comm::Group& group, const DeviceNorm& norm, at::Device device);
void normalize_backward_without_inputs(comm::Group& group, const DeviceNorm& norm, at::Device device);

}  // namespace lockstep::parallel
