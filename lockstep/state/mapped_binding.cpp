#include "lockstep/state/mapped_binding.h"

#include <c10/core/StorageImpl.h>

#include <utility>

#include "lockstep/state/mapped_memory.h"

namespace lockstep::state {
namespace {

c10::DataPtr owning(std::byte* data, const MappedMemory& memory) {
  return {data, new MappedMemory(memory), drop_mapped, c10::Device(c10::kCPU)};
}

std::size_t count(const TensorSpec& spec) {
  std::size_t elements = 1;
  for (std::int64_t size : spec.sizes) elements *= std::size_t(size);
  return elements;
}

}  // namespace

MappedBinding::MappedBinding(std::vector<at::Tensor> tensors, std::vector<BoundPlace> places,
                             std::shared_ptr<const void> memory, const std::byte* buffer)
    : tensors_(std::move(tensors)),
      places_(std::move(places)),
      memory_(std::move(memory)),
      buffer_(buffer),
      shown_(tensors_.size()) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) show(i, !places_[i].copy);
}

MappedBinding::~MappedBinding() {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (is_bound(i)) tensors_[i].set_data(master(i).clone());
}

void MappedBinding::show(std::size_t index, bool master) {
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

void MappedBinding::move(const c10::Storage& storage, std::size_t offset) {
  // What keeps the mapping stays with the storage: no allocation, no count of references.
  c10::StorageImpl& moved = *storage.unsafeGetStorageImpl();
  void* const memory = moved._mutable_data_ptr_no_checks().release_context();
  moved.set_data_ptr_noswap({writable(buffer_) + offset, memory, drop_mapped, c10::Device(c10::kCPU)});
}

bool MappedBinding::is_bound(std::size_t index) const {
  const c10::TensorImpl& tensor = *tensors_[index].unsafeGetTensorImpl();
  const Shown& shown = shown_[index];
  return tensor.unsafe_storage().unsafeGetStorageImpl() == shown.storage.unsafeGetStorageImpl() &&
         tensor.storage_offset() == 0 && c10::typeMetaToScalarType(tensor.dtype()) == shown.dtype &&
         tensor.sizes() == places_[index].spec.sizes && tensor.strides() == places_[index].spec.strides;
}

const std::string* MappedBinding::replaced() const {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!is_bound(i)) return &places_[i].spec.name;
  return nullptr;
}

void MappedBinding::take_over() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (is_bound(i)) continue;
    const TensorSpec& spec = places_[i].spec;
    check_fits(spec, tensors_[i]);
    view_of(spec, writable(buffer_) + places_[i].offset).copy_(tensors_[i].detach());
    show(i, true);
  }
}

void MappedBinding::restore() {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!is_bound(i)) show(i, is_master(i));
}

void MappedBinding::point_to(const std::byte* buffer) {
  buffer_ = buffer;
  for (std::size_t i = 0; i < shown_.size(); ++i) {
    move(shown_[i].storage, shown_[i].offset);
    tensors_[i].unsafeGetTensorImpl()->bump_version();
  }
}

void MappedBinding::show_masters(bool masters) {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (places_[i].copy) show(i, masters);
}

at::Tensor MappedBinding::master(std::size_t index) const {
  if (is_master(index)) return tensors_[index].detach();
  const BoundPlace& place = places_[index];
  return view_of(place.spec, buffer_ + place.offset, memory_);
}

}  // namespace lockstep::state
