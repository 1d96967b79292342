#pragma once

// Memory for pixels. What a thread has used it uses again: fresh memory costs a page fault for every 4 KiB,
// and malloc gives large blocks back to the system.

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep::data {

/// Gives memory back to the calling thread, or frees it when that has enough.
struct PixelMemoryDeleter {
  std::size_t bytes = 0;  ///< what was asked for
  void operator()(std::uint8_t* memory) const;
};

using PixelMemory = std::unique_ptr<std::uint8_t[], PixelMemoryDeleter>;

/// What a thread keeps at most for its next pictures: all that it needs for photographs of a few megapixels. A larger
/// one is rare, and takes far longer to decode than the page faults of fresh memory do.
inline constexpr std::size_t kKeptPixelBytes = std::size_t(16) << 20;

/// At least `bytes` bytes, not initialised; up to an eighth more. A thread keeps at most eight blocks of together at
/// most kKeptPixelBytes for itself, the last ones used, until it ends; small ones come from malloc. Thread-safe, and
/// memory may go from thread to thread.
PixelMemory pixel_memory(std::size_t bytes);

/// What the calling thread keeps at the moment.
std::size_t kept_pixel_bytes();

}  // namespace lockstep::data
