#pragma once

// What the codecs say about files that they refuse.

#include <cstdint>
#include <string>

namespace lockstep::data {

/// Throws UsageError "'name': what at offset o of n".
[[noreturn]] void refuse(const std::string& name, const std::string& what, std::size_t offset, std::size_t size);

/// UsageError when an image of `width` x `height` has no pixels, more than kMaxPixels, or more
/// than `room`, the most that a file of `size` bytes of its kind can hold.
void check_size(const std::string& name, std::int64_t width, std::int64_t height, std::int64_t room);

}  // namespace lockstep::data
