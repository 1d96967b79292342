#include "lockstep/state/binding.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/StorageImpl.h>

#include "lockstep/base/error.h"

namespace lockstep::state {
namespace {

c10::DataPtr borrowed(std::byte* memory) { return {memory, c10::Device(c10::kCPU)}; }

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

Binding::Binding(std::vector<at::Tensor> parameters, const Layout& layout, const std::byte* buffer)
    : parameters_(std::move(parameters)),
      layout_(layout),
      buffer_(buffer),
      storages_(parameters_.size()),
      offsets_(parameters_.size()) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) place(i, layout_.gradient_type(i));
}

Binding::~Binding() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].set_data(master(i).clone());
}

void Binding::place(std::size_t index, c10::ScalarType dtype) {
  const PlacedParameter& place = layout_.parameters()[index];
  offsets_[index] = offset(index, dtype);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), place.elements * c10::elementSize(dtype),
      borrowed(writable(buffer_) + offsets_[index]), /*allocator=*/nullptr, /*resizable=*/false));
  storages_[index] = storage.unsafeGetStorageImpl();
  at::Tensor placed = at::detail::make_tensor<at::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(dtype));
  placed.unsafeGetTensorImpl()->set_sizes_and_strides(place.spec.sizes, place.spec.strides);
  parameters_[index].set_data(placed);
}

std::size_t Binding::offset(std::size_t index, c10::ScalarType dtype) const {
  const std::size_t start = dtype == at::kFloat ? layout_.weights(0) : layout_.bf16_copies(0);
  return start - layout_.weights(0) + layout_.parameters()[index].offset * c10::elementSize(dtype);
}

void Binding::point_to(const std::byte* buffer) {
  buffer_ = buffer;
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    storages_[i]->set_data_ptr_noswap(borrowed(writable(buffer) + offsets_[i]));
    parameters_[i].unsafeGetTensorImpl()->bump_version();
  }
}

void Binding::show_masters(bool masters) {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (layout_.parameters()[i].spec.bf16) place(i, masters ? at::kFloat : at::kBFloat16);
}

at::Tensor Binding::master(std::size_t index) const {
  return view_of(layout_.parameters()[index].spec, writable(buffer_) + offset(index, at::kFloat));
}

}  // namespace lockstep::state
