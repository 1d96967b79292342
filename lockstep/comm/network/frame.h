#pragma once

// A message on its way over a stream: a header, which has a CRC-32C of its own, its bytes, and the CRC-32C of both.
// TCP's own checksum has 16 bits, and is that of each hop.

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/comm/collective_note.h"

namespace lockstep::comm {

struct Frame {
  struct Header {
    std::uint64_t magic = 0;
    std::uint64_t number = 0;  ///< of messages to this peer so far
    std::uint64_t bytes = 0;
    std::uint64_t step = 0;  ///< that its sender is in; 0: in none
    CollectiveNote note;
    std::uint64_t sum = 0;  ///< sum_of() it: nothing is read of a damaged one

    std::uint32_t sum_of() const;  ///< of what stands before it
  };

  Header header;
  std::uint32_t sum = 0;      ///< that of the sender
  std::size_t moved = 0;      ///< of all three
  std::size_t summed = 0;     ///< of the header and the bytes
  std::uint32_t running = 0;  ///< the checksum of these

  std::size_t moved_bytes() const;
  bool is_whole(std::span<const std::byte> bytes) const;

  /// What is left of the header, of the bytes up to `end`, and of the sum where the bytes end there.
  std::array<iovec, 3> rest(std::span<std::byte> bytes, std::size_t end);

  /// Adds to the running sum what comes before `end` of the bytes; the header is there.
  void add_up(std::span<const std::byte> bytes, std::size_t end);
};

}  // namespace lockstep::comm
