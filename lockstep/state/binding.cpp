#include "lockstep/state/binding.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/StringUtil.h>

#include "lockstep/base/error.h"

namespace lockstep::state {
namespace {

using Memory = std::shared_ptr<const void>;

void drop(void* memory) { delete static_cast<Memory*>(memory); }

c10::DataPtr owning(std::byte* data, const Memory& memory) {
  return {data, new Memory(memory), drop, c10::Device(c10::kCPU)};
}

std::byte* writable(const std::byte* memory) {
  return const_cast<std::byte*>(memory);  // the page protection guards it, torch has no const tensors
}

std::size_t count(const TensorSpec& spec) {
  std::size_t elements = 1;
  for (std::int64_t size : spec.sizes) elements *= std::size_t(size);
  return elements;
}

}  // namespace

std::vector<TensorSpec> specs_of(const std::vector<std::pair<std::string, at::Tensor>>& named, bool only_float) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : named) {
    if (tensor.layout() != at::kStrided)
      throw UsageError("'" + name + "' is on " + tensor.device().str() + "; only dense CPU tensors can be shared");
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
      .context(new Memory(mapping), drop)
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

Binding::Binding(std::vector<at::Tensor> tensors, std::vector<BoundPlace> places, std::shared_ptr<const void> memory,
                 const std::byte* buffer)
    : tensors_(std::move(tensors)),
      places_(std::move(places)),
      memory_(std::move(memory)),
      buffer_(buffer),
      shown_(tensors_.size()) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) show(i, !places_[i].copy);
}

Binding::~Binding() {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (is_bound(i)) tensors_[i].set_data(master(i).clone());
}

void Binding::show(std::size_t index, bool master) {
  const BoundPlace& place = places_[index];
  const c10::ScalarType dtype = master ? place.spec.dtype : at::kBFloat16;
  const std::size_t offset = master ? place.offset : *place.copy;
  Shown& now = shown_[index];
  if (now.storage && now.dtype != dtype) std::swap(now.storage, now.hidden);
  if (now.storage)
    move(now.storage, offset);
  else
    now.storage = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), count(place.spec) * c10::elementSize(dtype),
        owning(writable(buffer_) + offset, memory_), /*allocator=*/nullptr, /*resizable=*/false));
  at::Tensor shown = at::detail::make_tensor<at::TensorImpl>(
      c10::Storage(now.storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(dtype));
  shown.unsafeGetTensorImpl()->set_sizes_and_strides(place.spec.sizes, place.spec.strides);
  tensors_[index].set_data(shown);
  now.offset = offset;
  now.dtype = dtype;
}

void Binding::move(const c10::Storage& storage, std::size_t offset) {
  // What keeps the mapping stays with the storage: no allocation, no count of references.
  c10::StorageImpl& moved = *storage.unsafeGetStorageImpl();
  void* const memory = moved._mutable_data_ptr_no_checks().release_context();
  moved.set_data_ptr_noswap({writable(buffer_) + offset, memory, drop, c10::Device(c10::kCPU)});
}

bool Binding::is_bound(std::size_t index) const {
  const c10::TensorImpl& tensor = *tensors_[index].unsafeGetTensorImpl();
  const Shown& shown = shown_[index];
  return tensor.unsafe_storage().unsafeGetStorageImpl() == shown.storage.unsafeGetStorageImpl() &&
         tensor.storage_offset() == 0 && c10::typeMetaToScalarType(tensor.dtype()) == shown.dtype &&
         tensor.sizes() == places_[index].spec.sizes && tensor.strides() == places_[index].spec.strides;
}

const std::string* Binding::replaced() const {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!is_bound(i)) return &places_[i].spec.name;
  return nullptr;
}

void Binding::take_over() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (is_bound(i)) continue;
    const TensorSpec& spec = places_[i].spec;
    const at::Tensor given = tensors_[i].detach();
    if (given.scalar_type() != spec.dtype || given.sizes() != spec.sizes)
      throw UsageError("parameter '" + spec.name + "' was replaced by a tensor of " +
                       c10::toString(given.scalar_type()) + " " + c10::str(given.sizes()) + ", must be " +
                       c10::toString(spec.dtype) + " " + c10::str(at::IntArrayRef(spec.sizes)));
    view_of(spec, writable(buffer_) + places_[i].offset).copy_(given);
    show(i, true);
  }
}

void Binding::restore() {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!is_bound(i)) show(i, is_master(i));
}

void Binding::point_to(const std::byte* buffer) {
  buffer_ = buffer;
  for (std::size_t i = 0; i < shown_.size(); ++i) {
    move(shown_[i].storage, shown_[i].offset);
    tensors_[i].unsafeGetTensorImpl()->bump_version();
  }
}

void Binding::show_masters(bool masters) {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (places_[i].copy) show(i, masters);
}

at::Tensor Binding::master(std::size_t index) const {
  if (is_master(index)) return tensors_[index].detach();
  const BoundPlace& place = places_[index];
  return view_of(place.spec, buffer_ + place.offset, memory_);
}

}  // namespace lockstep::state
