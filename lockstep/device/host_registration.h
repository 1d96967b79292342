#pragma once

// Memory that is there already, shared between processes as a rule, made fit for asynchronous copies to a device.

#include <c10/core/Device.h>

#include <cstddef>
#include <span>
#include <string>

namespace lockstep::device {

/// Page-locks the memory for copies to and from a CUDA device while this object lives: whole pages, those that `memory`
/// begins and ends in too. Each process registers its own mapping; a mapping that is read-only serves for copies to the
/// device. For other devices it does nothing. Copies of tensors in the memory are right without it, only slower and
/// waited for: a refusal is no error but told by registered() and refusal(). The memory must stay mapped meanwhile.
/// Copies with non_blocking return before they are done: the memory stays as it is until then. Move only.
class HostRegistration {
 public:
  HostRegistration() = default;
  HostRegistration(std::span<std::byte> memory, at::Device device);
  HostRegistration(HostRegistration&& other) noexcept;
  HostRegistration& operator=(HostRegistration&& other) noexcept;
  ~HostRegistration();

  bool registered() const { return pages_ != nullptr; }
  /// The driver's words when it refused, one line; "" when it did not, or was not asked.
  const std::string& refusal() const { return refusal_; }

 private:
  void* pages_ = nullptr;  // where they begin
  std::string refusal_;
};

}  // namespace lockstep::device
