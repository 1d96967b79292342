#include "lockstep/parallel/module_buffers.h"

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

ModuleBuffers::ModuleBuffers(std::vector<at::Tensor> buffers, const state::Layout& layout)
    : buffers_(std::move(buffers)), layout_(layout), seen_(buffers_.size()) {}

void ModuleBuffers::load(const std::byte* from) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    check_fits(i);
    const state::PlacedBuffer& place = layout_.buffers()[i];
    if (place.bytes > 0) std::memcpy(buffers_[i].mutable_data_ptr(), from + place.offset, place.bytes);
  }
}

void ModuleBuffers::store(std::byte* to) const {
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
