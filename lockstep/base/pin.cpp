#include "lockstep/base/pin.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <string>

#include "lockstep/base/byte_lock.h"
#include "lockstep/base/error.h"

namespace lockstep::base {
namespace {

// Behind the one by which a segment is held.
constexpr std::int64_t pin_byte(int region, int buffer) {
  return Segment::kHoldByte + 1 + std::int64_t(region) * kMaxStateBuffers + buffer;
}

}  // namespace

Mapping pin_buffer(const Segment& segment, int region, int buffer) {
  // An open file of its own: what the segment's own has locked ends with the segment only.
  const UniqueFd file(::open(("/proc/self/fd/" + std::to_string(segment.fd())).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw_errno("segment: cannot open it once more");
  const auto [offset, bytes] = segment.extent(state_area(region));
  void* const data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), off_t(offset));
  if (data == MAP_FAILED) throw_errno("segment: cannot map " + std::to_string(bytes) + " bytes");
  Mapping mapping(data, bytes);
  lock_byte(file.get(), pin_byte(region, buffer));
  return mapping;
}

bool is_pinned(const Segment& segment, int region, int buffer) {
  return is_byte_locked(segment.fd(), pin_byte(region, buffer));
}

}  // namespace lockstep::base
