#include "lockstep/comm/network/frame.h"

#include <algorithm>

#include "lockstep/base/crc32c.h"

namespace lockstep::comm {

std::uint32_t Frame::Header::sum_of() const {
  return base::crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(Header, sum)));
}

std::size_t Frame::moved_bytes() const { return moved - std::min(moved, sizeof header); }

bool Frame::is_whole(std::span<const std::byte> bytes) const {
  return moved == sizeof header + bytes.size() + sizeof sum;
}

std::array<iovec, 3> Frame::rest(std::span<std::byte> bytes, std::size_t end) {
  const auto left = [&](void* data, std::size_t begin, std::size_t size) {
    const std::size_t done = std::min(moved - std::min(moved, begin), size);
    return iovec{.iov_base = static_cast<std::byte*>(data) + done, .iov_len = size - done};
  };
  return {left(&header, 0, sizeof header), left(bytes.data(), sizeof header, end),
          left(&sum, sizeof header + bytes.size(), end == bytes.size() ? sizeof sum : 0)};
}

void Frame::add_up(std::span<const std::byte> bytes, std::size_t end) {
  if (summed == 0) {
    running = base::crc32c(std::as_bytes(std::span(&header, 1)));
    summed = sizeof header;
  }
  const std::size_t begin = summed - sizeof header;
  if (end <= begin) return;
  running = base::crc32c(bytes.subspan(begin, end - begin), running);
  summed = sizeof header + end;
}

}  // namespace lockstep::comm
