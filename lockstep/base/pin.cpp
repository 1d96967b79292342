#include "lockstep/base/pin.h"

#include <fcntl.h>

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

UniqueFd pin_buffer(const Segment& segment, int region, int buffer) {
  // An open file of its own: what the segment's own has locked ends with the segment only.
  UniqueFd file(::open(("/proc/self/fd/" + std::to_string(segment.fd())).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw_errno("segment: cannot open it once more");
  lock_byte(file.get(), pin_byte(region, buffer));
  return file;
}

bool is_pinned(const Segment& segment, int region, int buffer) {
  return is_byte_locked(segment.fd(), pin_byte(region, buffer));
}

}  // namespace lockstep::base
