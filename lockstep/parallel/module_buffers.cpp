#include "lockstep/parallel/module_buffers.h"

#include <cstring>

namespace lockstep::parallel {

ModuleBuffers::ModuleBuffers(std::vector<at::Tensor> buffers, const state::Layout& layout)
    : buffers_(std::move(buffers)), layout_(layout), captured_(layout.module_buffer_bytes()) {}

void ModuleBuffers::load(const std::byte* from) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const state::PlacedBuffer& place = layout_.buffers()[i];
    if (place.bytes > 0) std::memcpy(buffers_[i].mutable_data_ptr(), from + place.offset, place.bytes);
  }
}

void ModuleBuffers::store(std::byte* to) const {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const state::PlacedBuffer& place = layout_.buffers()[i];
    if (place.bytes > 0) std::memcpy(to + place.offset, buffers_[i].const_data_ptr(), place.bytes);
  }
}

void ModuleBuffers::capture() { store(captured_.data()); }

void ModuleBuffers::write_captured(std::byte* to) const {
  if (!captured_.empty()) std::memcpy(to, captured_.data(), captured_.size());
}

}  // namespace lockstep::parallel
