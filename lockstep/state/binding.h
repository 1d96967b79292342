#pragma once

// Parameters whose memory is the committed buffer.
//
// Each parameter has a StorageImpl of its own. Moving to another buffer sets its data
// pointer and bumps the version counter: detached tensors and views follow, and a graph that
// saved the old values raises PyTorch's own "modified by an inplace operation" error.

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
  /// Copies nothing: puts each parameter at its place behind `weights`, the address of a
  /// buffer's flat range.
  Binding(std::vector<at::Tensor> parameters, const Layout& layout, const std::byte* weights);
  /// Gives every parameter private memory with the values it has: the module outlives the segment.
  ~Binding();
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

  /// Moves all parameters to another buffer.
  void point_to(const std::byte* weights);

  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<c10::StorageImpl*> storages_;  ///< owned by the parameters
  std::vector<std::size_t> offsets_;         ///< bytes from the start of the flat range
};

/// A tensor of the spec's dtype, shape and strides over memory that outlives it.
at::Tensor view_of(const TensorSpec& spec, std::byte* memory);

}  // namespace lockstep::state
