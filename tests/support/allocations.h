#pragma once

// Counts what a thread takes from malloc. A program that links allocations.cpp has its own malloc, which counts and
// asks glibc's; not for builds with sanitizers, which have one, too.

#include <cstdint>

namespace lockstep::support {

/// Calls of malloc, calloc, realloc, operator new and their aligned kin by this thread since it began.
std::uint64_t allocations_of_this_thread();

}  // namespace lockstep::support
