#include "lockstep/amp/bf16_parameters.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <typeinfo>

namespace lockstep::amp {
namespace {

namespace nn = torch::nn;

template <class... Impls>
bool is_any(const nn::Module& module) {
  return ((typeid(module) == typeid(Impls)) || ...);
}

bool multiplies(const nn::Module& module) {
  if (dynamic_cast<const ReadsAsItsBase*>(&module) != nullptr) return true;
  return is_any<nn::LinearImpl, nn::BilinearImpl, nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl,
                nn::ConvTranspose1dImpl, nn::ConvTranspose2dImpl, nn::ConvTranspose3dImpl>(module);
}

}  // namespace

std::unordered_set<const at::TensorImpl*> bf16_parameters(const nn::Module& module) {
  std::unordered_set<const at::TensorImpl*> found;
  std::unordered_set<const at::TensorImpl*> others;
  for (const std::shared_ptr<nn::Module>& part : module.modules())
    for (const at::Tensor& parameter : part->parameters(/*recurse=*/false))
      if (parameter.defined()) (multiplies(*part) ? found : others).insert(parameter.unsafeGetTensorImpl());
  std::erase_if(found, [&](const at::TensorImpl* parameter) { return others.contains(parameter); });
  return found;
}

}  // namespace lockstep::amp
