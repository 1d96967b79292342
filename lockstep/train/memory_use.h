#pragma once

// How much memory a process has.

#include <cstdint>

namespace lockstep::train {

/// Bytes in memory that are this process's alone, not files' and not shared; 0 where the kernel does not say.
std::int64_t private_memory();

}  // namespace lockstep::train
