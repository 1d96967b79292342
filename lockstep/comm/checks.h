#pragma once

// What every Group refuses, in the same words.

#include <ATen/core/Tensor.h>

#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// UsageError unless the tensor is defined, dense and on the CPU.
void check_cpu(const at::Tensor& tensor, const char* collective);

/// check_cpu, and UsageError unless `op` exists for the dtype.
void check_reducible(const at::Tensor& tensor, ReduceOp op);

/// UsageError unless 0 <= root < size.
void check_root(int root, int size);

}  // namespace lockstep::comm
