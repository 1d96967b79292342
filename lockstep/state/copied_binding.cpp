#include "lockstep/state/copied_binding.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <utility>

namespace lockstep::state {

CopiedBinding::CopiedBinding(std::vector<at::Tensor> tensors, std::vector<BoundPlace> places,
                             std::shared_ptr<const void> memory, const std::byte* buffer)
    : tensors_(std::move(tensors)),
      places_(std::move(places)),
      memory_(std::move(memory)),
      buffer_(buffer),
      shown_(tensors_.size()) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) show(i, !places_[i].copy);
}

CopiedBinding::~CopiedBinding() {
  if (tensors_.empty()) return;
  try {
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (places_[i].copy && is_bound(i)) show(i, true);
    const at::Device device = tensors_.front().device();
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeStream(guard.getStream(device));
  } catch (const std::exception&) {  // the device has failed or is full, which somebody has been told
  }
}

void CopiedBinding::show(std::size_t index, bool master) {
  const BoundPlace& place = places_[index];
  const at::ScalarType dtype = master ? place.spec.dtype : at::kBFloat16;
  Shown& now = shown_[index];
  if (now.data.defined() && now.data.scalar_type() != dtype) std::swap(now.data, now.hidden);
  if (!now.data.defined()) {
    const at::Tensor own = tensors_[index].detach();
    now.data = own.scalar_type() == dtype
                   ? own
                   : at::empty_strided(place.spec.sizes, place.spec.strides, own.options().dtype(dtype));
  }
  tensors_[index].set_data(now.data);
  copy(index);
}

void CopiedBinding::copy(std::size_t index) {
  const at::NoGradGuard no_grad;
  const BoundPlace& place = places_[index];
  Shown& now = shown_[index];
  TensorSpec spec = place.spec;
  spec.dtype = now.data.scalar_type();
  const std::size_t offset = spec.dtype == place.spec.dtype ? place.offset : *place.copy;
  now.data.copy_(view_of(spec, buffer_ + offset, memory_), /*non_blocking=*/true);
  if (!is_bound(index)) return;
  at::TensorImpl& tensor = *tensors_[index].unsafeGetTensorImpl();
  tensor.bump_version();
  now.version = tensor.version_counter().current_version();
}

bool CopiedBinding::is_bound(std::size_t index) const {
  const at::Tensor &tensor = tensors_[index], &data = shown_[index].data;
  return tensor.is_alias_of(data) && tensor.storage_offset() == data.storage_offset() &&
         tensor.scalar_type() == data.scalar_type() && tensor.sizes() == data.sizes() &&
         tensor.strides() == data.strides();
}

const std::string* CopiedBinding::replaced() const {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!is_bound(i)) return &places_[i].spec.name;
  return nullptr;
}

const std::string* CopiedBinding::edited() const {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (is_bound(i) && tensors_[i].unsafeGetTensorImpl()->version_counter().current_version() != shown_[i].version)
      return &places_[i].spec.name;
  return nullptr;
}

// What shares the memory of a tensor may have been edited in its place: all are copied.
void CopiedBinding::take_over() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const BoundPlace& place = places_[i];
    check_fits(place.spec, tensors_[i]);
    view_of(place.spec, buffer_ + place.offset, memory_).copy_(tensors_[i].detach());
    show(i, true);
  }
}

void CopiedBinding::restore() {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!is_bound(i)) show(i, shown_[i].data.scalar_type() == places_[i].spec.dtype);
}

void CopiedBinding::point_to(const std::byte* buffer) {
  buffer_ = buffer;
  for (std::size_t i = 0; i < shown_.size(); ++i) copy(i);
}

void CopiedBinding::show_masters(bool masters) {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (places_[i].copy) show(i, masters);
}

}  // namespace lockstep::state
