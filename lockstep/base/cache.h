#pragma once

// The processor's caches.

#include <cstddef>

namespace lockstep::base {

/// Bytes of the last-level cache that this machine's cores share; 32 MiB when unknown.
std::size_t last_level_cache();

}  // namespace lockstep::base
