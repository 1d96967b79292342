#include "lockstep/parallel/module_buffers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

ModuleBuffers::ModuleBuffers(std::vector<at::Tensor> buffers, const state::Layout& layout)
    : buffers_(std::move(buffers)), layout_(layout), seen_(buffers_.size()) {
  if (buffers_.empty() || buffers_.front().is_cpu()) return;
  on_device_ = at::zeros({std::int64_t(layout_.module_buffer_bytes())}, buffers_.front().options().dtype(at::kByte));
  gather();
}

// Puts each of them where it belongs, unless it is there.
void ModuleBuffers::gather() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    check_fits(i);
    const auto& [spec, offset, bytes] = layout_.buffers()[i];
    const at::Tensor memory = on_device_.narrow(0, std::int64_t(offset), std::int64_t(bytes));
    if (bytes == 0 || buffers_[i].const_data_ptr() == memory.const_data_ptr()) continue;
    const at::Tensor place = memory.view(spec.dtype).view(spec.sizes);
    place.copy_(buffers_[i]);
    buffers_[i].set_data(place);
  }
}

void ModuleBuffers::load(const std::byte* from) {
  if (on_device_.defined()) {
    gather();
    const at::NoGradGuard no_grad;
    on_device_.copy_(at::from_blob(const_cast<std::byte*>(from), on_device_.sizes(), at::kByte), /*non_blocking=*/true);
    return;
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    check_fits(i);
    const state::PlacedBuffer& place = layout_.buffers()[i];
    if (place.bytes > 0) std::memcpy(buffers_[i].mutable_data_ptr(), from + place.offset, place.bytes);
  }
}

void ModuleBuffers::store(std::byte* to) const {
  if (on_device_.defined()) {
    gather();
    const at::NoGradGuard no_grad;
    at::from_blob(to, on_device_.sizes(), at::kByte).copy_(on_device_);
    return;
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    check_fits(i);
    const state::PlacedBuffer& place = layout_.buffers()[i];
    if (place.bytes > 0) std::memcpy(to + place.offset, buffers_[i].const_data_ptr(), place.bytes);
  }
}

void ModuleBuffers::remember() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) seen_[i] = look(i);
}

void ModuleBuffers::check_untouched() const {
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    if (look(i) != seen_[i])
      throw Error("buffer '" + layout_.buffers()[i].spec.name +
                  "' was edited between two steps, but it is part of the state that all ranks share; edit it inside "
                  "ddp.modify(fn) (a forward in training mode edits BatchNorm's statistics, also without gradients: "
                  "evaluate after module.eval())");
}

// Tensors made in inference mode have no version.
ModuleBuffers::Seen ModuleBuffers::look(std::size_t index) const {
  const at::Tensor& tensor = buffers_[index];
  const std::uint64_t version =
      tensor.is_inference() ? 0 : tensor.unsafeGetTensorImpl()->version_counter().current_version();
  return {version, tensor.const_data_ptr()};
}

void ModuleBuffers::check_fits(std::size_t index) const {
  const state::TensorSpec& spec = layout_.buffers()[index].spec;
  const at::Tensor& tensor = buffers_[index];
  if (tensor.scalar_type() == spec.dtype && tensor.sizes() == spec.sizes && tensor.is_contiguous()) return;
  throw UsageError("buffer '" + spec.name + "' was replaced by a tensor of " + c10::toString(tensor.scalar_type()) +
                   " " + c10::str(tensor.sizes()) + ", must be " + c10::toString(spec.dtype) + " " +
                   c10::str(at::IntArrayRef(spec.sizes)) + ", contiguous");
}

}  // namespace lockstep::parallel
