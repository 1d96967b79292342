#pragma once

// From torch's words to those of the arithmetic.

#include <c10/core/ScalarType.h>

#include "lockstep/comm/group.h"
#include "lockstep/comm/reduce/reduce.h"

namespace lockstep::comm {

/// How tensors of `dtype` from `size` ranks are combined; dtype and op as check_reducible() has let through.
Reduction reduction_of(at::ScalarType dtype, ReduceOp op, int size);

}  // namespace lockstep::comm
