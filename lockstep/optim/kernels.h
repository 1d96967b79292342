#pragma once

// The kernel's three builds; the functions of update.h choose.

#include <cstddef>

#include "lockstep/optim/update.h"

namespace lockstep::optim {

/// Of the rule at `rule`, which is the alternative number `kind` of Rule.
using Kernel = void(std::size_t kind, const void* rule, const Arrays& arrays, std::size_t begin, std::size_t end,
                    bool streaming);

/// square_sums() of the rule.
using Measure = SquareSums(std::size_t kind, const void* rule, const Arrays& arrays, std::size_t begin,
                           std::size_t end);

/// begin_update() of the rule.
using Begin = SquareSums(std::size_t kind, const void* rule, const Arrays& arrays, std::size_t begin, std::size_t end,
                         bool streaming);

Kernel update_avx512, finish_avx512;
Kernel update_avx2, finish_avx2;
Kernel update_scalar, finish_scalar;
Measure measure_avx512;
Measure measure_avx2;
Measure measure_scalar;
Begin begin_avx512;
Begin begin_avx2;
Begin begin_scalar;

}  // namespace lockstep::optim
