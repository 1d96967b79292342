#pragma once

// A group over any c10d::Backend. Apart from lockstep.h, for libtorch's headers of torch.distributed take a while.

#include "lockstep/comm/network/c10d_group.h"

namespace lockstep {
using comm::over_backend;
using comm::OverBackendOptions;
}  // namespace lockstep
