#pragma once

// For backward passes of our own that autograd does not see into.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace lockstep::parallel {

/// `gradients`, which depend on the tensors `of` in a way that autograd does not know. With create_graph they would be
/// taken for constants: then differentiating them throws `error`.
std::vector<at::Tensor> differentiable_once(std::vector<at::Tensor> gradients, const std::vector<at::Tensor>& of,
                                            const std::string& error);

}  // namespace lockstep::parallel
