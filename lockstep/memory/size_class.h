#pragma once

// The sizes in which memory is kept. Blocks of one class are interchangeable, so a class must be neither too wide
// (waste) nor too narrow (nothing of another size can be reused). Eight classes between each power of two and the
// next: a block is less than an eighth larger than what was asked for, or less than 64 bytes. Pure functions.

#include <cstddef>

namespace lockstep::memory {

/// torch's alignment, and the step of the smallest classes. Bytes.
inline constexpr std::size_t kAlignment = 64;

/// The largest request, in bytes: more is no memory of any machine.
inline constexpr std::size_t kLargestRequest = std::size_t{1} << 47;

/// The class of a request of 1 to kLargestRequest bytes.
std::size_t size_class_of(std::size_t bytes);

/// The bytes that a block of a class holds: a multiple of kAlignment.
std::size_t bytes_of_size_class(std::size_t size_class);

/// One more than the class of kLargestRequest.
inline constexpr std::size_t kSizeClasses = 312;

}  // namespace lockstep::memory
