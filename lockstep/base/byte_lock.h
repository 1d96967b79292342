#pragma once

// Locks of the kernel's on single bytes of a file, which need not be there, bound to the open file (F_OFD_SETLK):
// such a lock ends with the last descriptor and mapping of the open file on which it was taken, however their processes
// end, and a child that is forked keeps it. Any number of open files may have locked one byte.

#include <cstdint>

namespace lockstep::base {

/// Locks `byte` for the open file of `fd`, which must be readable. Who stores a word and then asks is_byte_locked()
/// sees the lock, or the word is seen after this call: each side moves first and looks second. Throws Error.
void lock_byte(int fd, std::int64_t byte);

/// Whether another open file than that of `fd` has locked `byte`. Throws Error.
bool is_byte_locked(int fd, std::int64_t byte);

}  // namespace lockstep::base
