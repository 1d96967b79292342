#pragma once

// Parameters whose memory is the committed buffer.
//
// Each parameter has a StorageImpl of its own. Moving to another buffer sets its data
// pointer and bumps the version counter: detached tensors and views follow, and a graph that
// saved the old values raises PyTorch's own "modified by an inplace operation" error.
//
// A parameter with a bfloat16 copy (TensorSpec::bf16) is that copy, a bfloat16 tensor; its
// float32 weights are its master.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "lockstep/state/layout.h"

namespace lockstep::state {

/// The specs of parameters or module buffers, in the order given.
/// UsageError when a tensor is not on the CPU, not dense, or (`only_float`) not float32.
std::vector<TensorSpec> specs_of(const std::vector<std::pair<std::string, at::Tensor>>& named, bool only_float);

class Binding {
 public:
  /// Copies nothing: puts each parameter at its place in the state buffer that begins at
  /// `buffer`. The layout must outlive the binding.
  Binding(std::vector<at::Tensor> parameters, const Layout& layout, const std::byte* buffer);
  /// Gives every parameter private memory with its master's values: the module outlives the segment.
  ~Binding();
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

  /// Moves all parameters to another buffer.
  void point_to(const std::byte* buffer);

  /// Parameters with a copy become their masters, in the same buffer, or their copies again. Their
  /// dtype changes, and with it their gradient accumulators: hooks on those have to be set anew.
  void show_masters(bool masters);

  /// The float32 weights of parameter `index` in the current buffer, over memory that the next
  /// point_to() leaves behind.
  at::Tensor master(std::size_t index) const;

  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  void place(std::size_t index, c10::ScalarType dtype);
  /// Bytes from the start of a buffer to the master or the copy of a parameter.
  std::size_t offset(std::size_t index, c10::ScalarType dtype) const;

  std::vector<at::Tensor> parameters_;
  const Layout& layout_;
  const std::byte* buffer_;
  std::vector<c10::StorageImpl*> storages_;  ///< owned by the parameters
  std::vector<std::size_t> offsets_;         ///< of what is shown, bytes from the start of a buffer
};

/// A tensor of the spec's dtype, shape and strides over memory that outlives it.
at::Tensor view_of(const TensorSpec& spec, std::byte* memory);

}  // namespace lockstep::state
