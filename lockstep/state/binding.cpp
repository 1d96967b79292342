#include "lockstep/state/binding.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/StringUtil.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/state/copied_binding.h"
#include "lockstep/state/mapped_binding.h"
#include "lockstep/state/mapped_memory.h"

namespace lockstep::state {

std::vector<TensorSpec> specs_of(const std::vector<std::pair<std::string, at::Tensor>>& named, bool only_float) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : named) {
    if (tensor.layout() != at::kStrided)
      throw UsageError("'" + name + "' is " + c10::str(tensor.layout()) + "; only dense tensors can be shared");
    if (only_float && tensor.scalar_type() != at::kFloat)
      throw UsageError("'" + name + "' is " + c10::toString(tensor.scalar_type()) +
                       "; the fused optimizers keep float32 parameters");
    if (!tensor.is_non_overlapping_and_dense())
      throw UsageError(name + ": its elements overlap or leave gaps (strides " + c10::str(tensor.strides()) +
                       "); make it contiguous");
    specs.push_back({name, tensor.scalar_type(), tensor.sizes().vec(), tensor.strides().vec()});
  }
  return specs;
}

at::Tensor view_of(const TensorSpec& spec, std::byte* memory) {
  return at::for_blob(memory, spec.sizes)
      .strides(spec.strides)
      .options(at::TensorOptions().dtype(spec.dtype))
      .make_tensor();
}

at::Tensor view_of(const TensorSpec& spec, const std::byte* memory, const std::shared_ptr<const void>& mapping) {
  return at::for_blob(writable(memory), spec.sizes)
      .strides(spec.strides)
      .context(new MappedMemory(mapping), drop_mapped)
      .options(at::TensorOptions().dtype(spec.dtype))
      .make_tensor();
}

std::vector<BoundPlace> parameter_places(const Layout& layout) {
  std::vector<BoundPlace> places;
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
    const PlacedParameter& parameter = layout.parameters()[i];
    BoundPlace place{parameter.spec, parameter.offset * sizeof(float), std::nullopt};
    if (parameter.spec.bf16_copy) place.copy = layout.bf16_copy(0, i) - layout.weights(0);
    places.push_back(std::move(place));
  }
  return places;
}

std::vector<BoundPlace> frozen_places(const Layout& layout) {
  std::vector<BoundPlace> places;
  for (const PlacedBuffer& parameter : layout.frozen())
    places.push_back({parameter.spec, parameter.offset, std::nullopt});
  return places;
}

void check_fits(const TensorSpec& spec, const at::Tensor& given) {
  if (given.scalar_type() == spec.dtype && given.sizes() == spec.sizes) return;
  throw UsageError("parameter '" + spec.name + "' was replaced by a tensor of " + c10::toString(given.scalar_type()) +
                   " " + c10::str(given.sizes()) + ", must be " + c10::toString(spec.dtype) + " " +
                   c10::str(at::IntArrayRef(spec.sizes)));
}

std::unique_ptr<Binding> bind(std::vector<at::Tensor> tensors, std::vector<BoundPlace> places,
                              std::shared_ptr<const void> memory, const std::byte* buffer) {
  if (tensors.empty() || tensors.front().device().is_cpu())
    return std::make_unique<MappedBinding>(std::move(tensors), std::move(places), std::move(memory), buffer);
  return std::make_unique<CopiedBinding>(std::move(tensors), std::move(places), std::move(memory), buffer);
}

}  // namespace lockstep::state
