#pragma once

// Tensors whose memory is a part of a state buffer.
//
// Each has a StorageImpl of its own. Moving to another buffer sets its data pointer: detached tensors and views follow.
// The data pointer owns the mapping: a tensor that shares it is valid as long as it is kept.

#include <memory>
#include <string>
#include <vector>

#include "lockstep/state/binding.h"

namespace lockstep::state {

class MappedBinding final : public Binding {
 public:
  /// As bind(), of tensors on the CPU. Copies nothing.
  MappedBinding(std::vector<at::Tensor> tensors, std::vector<BoundPlace> places, std::shared_ptr<const void> memory,
                const std::byte* buffer);
  ~MappedBinding() override;
  MappedBinding(const MappedBinding&) = delete;
  MappedBinding& operator=(const MappedBinding&) = delete;

  void point_to(const std::byte* buffer) override;
  const std::byte* buffer() const override { return buffer_; }
  const std::string* replaced() const override;
  const std::string* edited() const override { return nullptr; }
  void take_over() override;
  void restore() override;
  void show_masters(bool masters) override;
  const std::vector<at::Tensor>& tensors() const override { return tensors_; }

  /// The float32 weights of parameter `index`: a tensor that shares its storage where that is there, else one over
  /// memory that the next point_to() leaves behind.
  at::Tensor master(std::size_t index) const;

 private:
  /// What a tensor is now: its master or its copy. Each has one storage, made when it is first shown and used again, so
  /// that whatever shares it (detached tensors, views) follows.
  struct Shown {
    c10::Storage storage;
    std::size_t offset = 0;  ///< bytes from the start of a buffer
    c10::ScalarType dtype = c10::ScalarType::Float;
    c10::Storage hidden;  ///< of the other one; null: never shown
  };
  void show(std::size_t index, bool master);
  void move(const c10::Storage& storage, std::size_t offset);
  bool is_master(std::size_t index) const { return shown_[index].dtype == places_[index].spec.dtype; }
  bool is_bound(std::size_t index) const;

  std::vector<at::Tensor> tensors_;
  std::vector<BoundPlace> places_;
  std::shared_ptr<const void> memory_;
  const std::byte* buffer_;
  std::vector<Shown> shown_;
};

}  // namespace lockstep::state
