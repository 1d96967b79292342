#pragma once

// Batch normalisation over the ranks of a group on tensors of a device, beside that of all their batches at once on the
// host: for a stand-in device and for a real one alike.

#include <c10/core/Device.h>

#include <memory>

#include "lockstep/comm/group.h"

namespace lockstep::support {

/// The layer and converted BatchNorms, in several shapes, dtypes and formats, with empty batches among them: outputs,
/// gradients and running statistics are BatchNorm's on the whole batch but for rounding. All ranks.
void expect_norm_of_the_whole_batch(const std::shared_ptr<comm::Group>& group, at::Device device);

/// No values on any rank are zeros for gradients and leave the statistics alone; one is PyTorch's error, on all ranks.
void expect_norm_of_few_values(const std::shared_ptr<comm::Group>& group, at::Device device);

}  // namespace lockstep::support
