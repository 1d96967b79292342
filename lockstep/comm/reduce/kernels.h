#pragma once

// The kernel's three builds; tree_reduce(), widen() and narrow() choose.

#include "lockstep/comm/reduce/reduce.h"

namespace lockstep::comm {

using ReduceKernel = void (*)(const Reduction&, const Buffers&, std::size_t, std::size_t);
using WidenKernel = void (*)(Element, const std::byte*, std::size_t, float*);
using NarrowKernel = void (*)(Element, const float*, std::size_t, std::byte*);

void reduce_avx512(const Reduction& reduction, const Buffers& buffers, std::size_t begin, std::size_t end);
void reduce_avx2(const Reduction& reduction, const Buffers& buffers, std::size_t begin, std::size_t end);
void reduce_scalar(const Reduction& reduction, const Buffers& buffers, std::size_t begin, std::size_t end);

void widen_avx512(Element element, const std::byte* from, std::size_t elements, float* to);
void widen_avx2(Element element, const std::byte* from, std::size_t elements, float* to);
void widen_scalar(Element element, const std::byte* from, std::size_t elements, float* to);

void narrow_avx512(Element element, const float* from, std::size_t elements, std::byte* to);
void narrow_avx2(Element element, const float* from, std::size_t elements, std::byte* to);
void narrow_scalar(Element element, const float* from, std::size_t elements, std::byte* to);

}  // namespace lockstep::comm
