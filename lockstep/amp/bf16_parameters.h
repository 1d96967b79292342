#pragma once

// Which parameters forward reads in bfloat16 alone.

#include <ATen/core/Tensor.h>

#include <unordered_set>

namespace torch::nn {
class Module;  // its header takes ten seconds to compile
}

namespace lockstep::amp {

/// For a layer that is derived from one of those below and reads its parameters as that one does.
class ReadsAsItsBase {
 public:
  virtual ~ReadsAsItsBase() = default;
};

/// The parameters of `module` that autocast casts to bfloat16 wherever its submodules use them: weights and biases of
/// Linear, Bilinear, convolutions and transposed convolutions. BatchNorm and the like keep float32, and so do classes
/// derived from those, whose forward may do anything (but ReadsAsItsBase), and parameters that another kind of module
/// has as well (a tied Embedding). What forward functions read beside their modules cannot be seen here: a parameter of
/// a Linear that F::embedding or a penalty reads is bfloat16 there.
std::unordered_set<const at::TensorImpl*> bf16_parameters(const torch::nn::Module& module);

}  // namespace lockstep::amp
