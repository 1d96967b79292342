#pragma once

// A disk that is slow when a test wants it.

#include <atomic>

namespace lockstep::train {

/// What each fsync() of this program calls first, but in its first thread, which trains; null: nothing. The program has
/// its own fsync() in the place of libc's.
extern std::atomic<void (*)()> before_fsync;

}  // namespace lockstep::train
