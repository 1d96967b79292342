#pragma once

// Tensors whose values are a part of a state buffer: on the CPU they lie in it (mapped_binding.h), on another device
// they are copies of it (copied_binding.h).
//
// Moving to another buffer bumps the version counter: a graph that saved the old values raises PyTorch's own "modified
// by an inplace operation" error.
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
/// UsageError when a tensor is not dense, or (`only_float`) not float32.
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
  /// Those that still are bound get private memory with their master's values: the module outlives the segment.
  virtual ~Binding() = default;

  /// Moves all tensors to another buffer. One that somebody replaced keeps what it has.
  virtual void point_to(const std::byte* buffer) = 0;
  virtual const std::byte* buffer() const = 0;

  /// The name of a tensor that is bound no more, since somebody gave it another storage (set_data(), torch::load),
  /// shape or dtype; null: none.
  virtual const std::string* replaced() const = 0;
  /// The name of a tensor that has other values than its buffer, since somebody edited it in place; null: none, or
  /// nobody can, for the buffer is protected.
  virtual const std::string* edited() const = 0;

  /// Copies the values of replaced and edited tensors to their places in the buffer, which must be writable, and binds
  /// them again. UsageError naming the tensor when shape or dtype differ.
  virtual void take_over() = 0;
  /// Binds replaced tensors again, without their values.
  virtual void restore() = 0;

  /// Parameters with a copy become their masters, in the same buffer, or their copies again. Their
  /// dtype changes, and with it their gradient accumulators: hooks on those have to be set anew.
  virtual void show_masters(bool masters) = 0;

  virtual const std::vector<at::Tensor>& tensors() const = 0;
};

/// Puts each tensor at its place in the buffer that begins at `buffer`, in a mapping that `memory` keeps, whose values
/// it has then. All tensors are on one device.
std::unique_ptr<Binding> bind(std::vector<at::Tensor> tensors, std::vector<BoundPlace> places,
                              std::shared_ptr<const void> memory, const std::byte* buffer);

/// A tensor of the spec's dtype, shape and strides over memory that outlives it.
at::Tensor view_of(const TensorSpec& spec, std::byte* memory);
/// The same over a mapping that the tensor keeps. Nobody writes to it: page protection guards it.
at::Tensor view_of(const TensorSpec& spec, const std::byte* memory, const std::shared_ptr<const void>& mapping);

/// UsageError naming the parameter when `given` has another dtype or shape than the spec.
void check_fits(const TensorSpec& spec, const at::Tensor& given);

}  // namespace lockstep::state
