#pragma once

// The kernel's three builds; tree_reduce() chooses.

#include "lockstep/comm/reduce/reduce.h"

namespace lockstep::comm {

using ReduceKernel = void (*)(const Reduction&, const Buffers&, std::size_t, std::size_t);

void reduce_avx512(const Reduction& reduction, const Buffers& buffers, std::size_t begin, std::size_t end);
void reduce_avx2(const Reduction& reduction, const Buffers& buffers, std::size_t begin, std::size_t end);
void reduce_scalar(const Reduction& reduction, const Buffers& buffers, std::size_t begin, std::size_t end);

}  // namespace lockstep::comm
