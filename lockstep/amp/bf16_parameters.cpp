#include "lockstep/amp/bf16_parameters.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

namespace lockstep::amp {
namespace {

namespace nn = torch::nn;

template <class... Impls>
bool is_any(const nn::Module& module) {
  return ((dynamic_cast<const Impls*>(&module) != nullptr) || ...);
}

bool multiplies(const nn::Module& module) {
  return is_any<nn::LinearImpl, nn::BilinearImpl, nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl,
                nn::ConvTranspose1dImpl, nn::ConvTranspose2dImpl, nn::ConvTranspose3dImpl>(module);
}

}  // namespace

std::unordered_set<const at::TensorImpl*> bf16_parameters(const nn::Module& module) {
  std::unordered_set<const at::TensorImpl*> found;
  for (const std::shared_ptr<nn::Module>& part : module.modules()) {
    if (!multiplies(*part)) continue;
    for (const at::Tensor& parameter : part->parameters(/*recurse=*/false))
      if (parameter.defined()) found.insert(parameter.unsafeGetTensorImpl());
  }
  return found;
}

}  // namespace lockstep::amp
