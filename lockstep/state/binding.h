#pragma once

// Tensors whose memory is a part of a state buffer.
//
// Each has a StorageImpl of its own. Moving to another buffer sets its data pointer and bumps the version counter:
// detached tensors and views follow, and a graph that saved the old values raises PyTorch's own "modified by an inplace
// operation" error. The data pointer owns the mapping: a tensor that shares it is valid as long as it is kept.
//
// A parameter with a bfloat16 copy (TensorSpec::bf16_copy) is that copy, a bfloat16 tensor; its float32 weights are its
// master.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/state/layout.h"

namespace lockstep::state {

/// The specs of parameters or module buffers, in the order given.
/// UsageError when a tensor is not on the CPU, not dense, or (`only_float`) not float32.
std::vector<TensorSpec> specs_of(const std::vector<std::pair<std::string, at::Tensor>>& named, bool only_float);

/// Where a tensor lies, in bytes from the start of a buffer.
struct BoundPlace {
  TensorSpec spec;
  std::size_t offset = 0;
  std::optional<std::size_t> copy;  ///< of its bfloat16 copy
};

/// The parameters of a layout, from the start of a state buffer.
std::vector<BoundPlace> parameter_places(const Layout& layout);
/// The frozen ones, from the start of a frozen area.
std::vector<BoundPlace> frozen_places(const Layout& layout);

class Binding {
 public:
  /// Copies nothing: puts each tensor at its place in the buffer that begins at `buffer`, in a mapping that `memory`
  /// keeps.
  Binding(std::vector<at::Tensor> tensors, std::vector<BoundPlace> places, std::shared_ptr<const void> memory,
          const std::byte* buffer);
  /// Gives every tensor that is still bound private memory with its master's values: the module outlives the segment.
  ~Binding();
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

  /// Moves all tensors to another buffer. One that somebody replaced keeps what it has.
  void point_to(const std::byte* buffer);
  const std::byte* buffer() const { return buffer_; }

  /// The name of a tensor that is bound no more, since somebody gave it another storage (set_data(), torch::load),
  /// shape or dtype; null: none.
  const std::string* replaced() const;

  /// Copies the values of replaced tensors to their places in the buffer, which must be writable, and binds them again.
  /// UsageError naming the tensor when shape or dtype differ.
  void take_over();
  /// Binds replaced tensors again, without their values.
  void restore();

  /// Parameters with a copy become their masters, in the same buffer, or their copies again. Their
  /// dtype changes, and with it their gradient accumulators: hooks on those have to be set anew.
  void show_masters(bool masters);

  /// The float32 weights of parameter `index`: where the tensor is its master, a tensor that shares its storage; else
  /// one over memory that the next point_to() leaves behind.
  at::Tensor master(std::size_t index) const;

  const std::vector<at::Tensor>& tensors() const { return tensors_; }

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

/// A tensor of the spec's dtype, shape and strides over memory that outlives it.
at::Tensor view_of(const TensorSpec& spec, std::byte* memory);
/// The same over a mapping that the tensor keeps. Nobody writes to it: page protection guards it.
at::Tensor view_of(const TensorSpec& spec, const std::byte* memory, const std::shared_ptr<const void>& mapping);

}  // namespace lockstep::state
