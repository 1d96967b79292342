#pragma once

// Adasum: adds what gradients have orthogonal, averages what they have in common.
//
//   Adasum(a, b) = (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b
//
// from S. Maleki et al., "Scaling Distributed Training with Adaptive Summation", arXiv:2006.02924, section 3; of many
// vectors in pairs, as there. With a power of two of them these are the pairs of neighbours, as in Horovod. Horovod
// takes no other number on CPUs; here the tree of base/tree.h goes on for any: the largest power of two below n on one
// side, the rest on the other. A vector without length leaves the other as it is.

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::horovod {

/// Of tensors of one shape and one floating dtype; at least one. Computed in float64, rounded once at the end. A new
/// tensor. Pure.
at::Tensor adasum(const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::horovod
