#pragma once

// Tensors on a device, which are copies of a state buffer.
//
// They keep the memory that they had, or get some beside it where they are bfloat16 copies. Moving to another buffer
// queues copies on the device's current stream: work behind it on that stream sees the new values, and the buffer must
// stand still until the host has waited for that stream. No page protection guards a copy: edited() tells by the
// version.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/state/binding.h"

namespace lockstep::state {

class CopiedBinding final : public Binding {
 public:
  /// As bind(), of tensors on one device that is not the CPU. Copies out of page-locked memory go on beside the host.
  CopiedBinding(std::vector<at::Tensor> tensors, std::vector<BoundPlace> places, std::shared_ptr<const void> memory,
                const std::byte* buffer);
  /// Waits for copies that are under way. On a device that has failed or has no memory left, parameters stay what they
  /// are.
  ~CopiedBinding() override;
  CopiedBinding(const CopiedBinding&) = delete;
  CopiedBinding& operator=(const CopiedBinding&) = delete;

  void point_to(const std::byte* buffer) override;
  const std::byte* buffer() const override { return buffer_; }
  const std::string* replaced() const override;
  const std::string* edited() const override;
  void take_over() override;
  void restore() override;
  void show_masters(bool masters) override;
  const std::vector<at::Tensor>& tensors() const override { return tensors_; }

 private:
  /// What a tensor is now, its master or its bfloat16 copy, and the other one, which is made when it is first shown.
  struct Shown {
    at::Tensor data;
    at::Tensor hidden;
    std::uint32_t version = 0;  ///< of the tensor, when it had the buffer's values
  };
  void show(std::size_t index, bool master);
  void copy(std::size_t index);
  bool is_bound(std::size_t index) const;

  std::vector<at::Tensor> tensors_;
  std::vector<BoundPlace> places_;
  std::shared_ptr<const void> memory_;
  const std::byte* buffer_;
  std::vector<Shown> shown_;
};

}  // namespace lockstep::state
