#pragma once

// What tensors over a mapping hold of it. Internal to the module.

#include <cstddef>
#include <memory>

namespace lockstep::state {

using MappedMemory = std::shared_ptr<const void>;

/// Deletes the MappedMemory that a data pointer has as its context.
inline void drop_mapped(void* memory) { delete static_cast<MappedMemory*>(memory); }

/// The page protection guards it: torch has no const tensors.
inline std::byte* writable(const std::byte* memory) { return const_cast<std::byte*>(memory); }

}  // namespace lockstep::state
