#include "lockstep/state/binding.h"

#include <c10/core/StorageImpl.h>

#include "lockstep/base/error.h"

namespace lockstep::state {
namespace {

c10::DataPtr borrowed(std::byte* memory) { return {memory, c10::Device(c10::kCPU)}; }

std::size_t bytes_of(const PlacedParameter& parameter) { return parameter.elements * sizeof(float); }

std::byte* writable(const std::byte* memory) {
  return const_cast<std::byte*>(memory);  // the page protection guards it, torch has no const tensors
}

}  // namespace

std::vector<TensorSpec> specs_of(const std::vector<std::pair<std::string, at::Tensor>>& named, bool only_float) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : named) {
    if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided)
      throw UsageError(name + ": is on " + tensor.device().str() + "; only dense CPU tensors can be shared");
    if (only_float && tensor.scalar_type() != at::kFloat)
      throw UsageError(name + ": is " + c10::toString(tensor.scalar_type()) +
                       "; the fused optimizers keep float32 parameters");
    if (!tensor.is_non_overlapping_and_dense())
      throw UsageError(name + ": its elements overlap or leave gaps (strides " + c10::str(tensor.strides()) +
                       "); make it contiguous");
    specs.push_back({name, tensor.scalar_type(), tensor.sizes().vec(), tensor.strides().vec()});
  }
  return specs;
}

at::Tensor view_of(const TensorSpec& spec, std::byte* memory) {
  std::size_t elements = 1;
  for (std::int64_t size : spec.sizes) elements *= std::size_t(size);
  return at::for_blob(memory, spec.sizes)
      .strides(spec.strides)
      .options(at::TensorOptions().dtype(spec.dtype))
      .make_tensor();
}

Binding::Binding(std::vector<at::Tensor> parameters, const Layout& layout, const std::byte* weights)
    : parameters_(std::move(parameters)) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const PlacedParameter& place = layout.parameters()[i];
    offsets_.push_back(place.offset * sizeof(float));
    c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes_of(place),
                                                               borrowed(writable(weights) + offsets_.back()),
                                                               /*allocator=*/nullptr, /*resizable=*/false));
    storages_.push_back(storage.unsafeGetStorageImpl());
    at::Tensor placed = at::detail::make_tensor<at::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>());
    placed.unsafeGetTensorImpl()->set_sizes_and_strides(place.spec.sizes, place.spec.strides);
    parameters_[i].set_data(placed);
  }
}

Binding::~Binding() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].set_data(parameters_[i].detach().clone());
}

void Binding::point_to(const std::byte* weights) {
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    storages_[i]->set_data_ptr_noswap(borrowed(writable(weights) + offsets_[i]));
    parameters_[i].unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace lockstep::state
