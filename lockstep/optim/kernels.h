#pragma once

// The kernel's three builds; update() chooses.

#include <cstddef>

#include "lockstep/optim/update.h"

namespace lockstep::optim {

/// Of the rule at `rule`, which is the alternative number `kind` of Rule.
using Kernel = void(std::size_t kind, const void* rule, const Arrays& arrays, std::size_t begin, std::size_t end,
                    bool streaming);

Kernel update_avx512;
Kernel update_avx2;
Kernel update_scalar;

}  // namespace lockstep::optim
