#pragma once

// The module's buffers (BatchNorm statistics): private tensors of each rank, whose values a step commits as part of the
// state. Between steps they hold the committed values, and nobody but the engine may edit them. On a device all of them
// lie in one piece of memory, so that one copy moves them.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/state/layout.h"

namespace lockstep::parallel {

class ModuleBuffers {
 public:
  /// `buffers` in the order of the layout's; contiguous. The layout must outlive this.
  ModuleBuffers(std::vector<at::Tensor> buffers, const state::Layout& layout);

  /// Sets the buffers to the values at `from`; on a device by a copy that is queued on its current stream, during which
  /// page-locked memory must stand still. UsageError when somebody gave one another shape or dtype.
  void load(const std::byte* from);
  /// Writes the buffers' values. UsageError likewise.
  void store(std::byte* to) const;

  /// From here on, an edit is somebody else's.
  void remember();
  /// Error naming a buffer that was edited or replaced since remember(), by its version counter.
  void check_untouched() const;

 private:
  struct Seen {
    std::uint64_t version = 0;
    const void* data = nullptr;
    bool operator==(const Seen&) const = default;
  };
  Seen look(std::size_t index) const;
  void check_fits(std::size_t index) const;
  void gather() const;

  std::vector<at::Tensor> buffers_;
  const state::Layout& layout_;
  std::vector<Seen> seen_;
  at::Tensor on_device_;  ///< their bytes, as the layout places them; undefined on the CPU
};

}  // namespace lockstep::parallel
