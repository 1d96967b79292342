#pragma once

// Sleeping on a word that other processes share. std::atomic::wait cannot be used:
// libstdc++ makes private futexes, which never wake another process.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::base {

/// Sleeps until the word differs from `expected`, somebody wakes it, or `slice` is over.
/// May return early for no reason.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds slice);

/// Wakes all who sleep on the word.
void futex_wake(std::atomic<std::uint32_t>& word);

}  // namespace lockstep::base
