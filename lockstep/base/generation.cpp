#include "lockstep/base/generation.h"

#include <cstring>

namespace lockstep::base {
namespace {

// The state is in the committed buffer, which nobody writes to any more: the generation that might is over, so
// it commits nothing, and who has not seen a commit writes to the other buffers only.
void copy_state(const Segment& from, Segment& to) {
  const ControlPage& old_page = from.control();
  ControlPage& page = to.control();
  const std::uint64_t fingerprint = old_page.state_fingerprint.load(std::memory_order_acquire);
  if (fingerprint != 0) {
    const Extent old_place = from.extent(Part::state);
    const std::size_t offset = to.grow(Part::state, old_place.bytes);
    std::memcpy(to.map(offset, old_place.bytes, Access::read_write).data(),
                from.map(old_place.offset, old_place.bytes, Access::read_only).data(), old_place.bytes);
  }
  page.generation.store(old_page.generation.load());
  page.commit.store(old_page.commit.load());
  page.error.state.store(old_page.error.state.load());
  page.state_generation.store(old_page.state_generation.load());
  page.state_buffers.store(old_page.state_buffers.load());
  page.state_fingerprint.store(fingerprint);
  page.data_fingerprint.store(old_page.data_fingerprint.load());
}

}  // namespace

Segment next_generation(Segment segment, int local_world) {
  ControlPage& page = segment.control();
  next_generation(page, local_world);
  if (segment.is_held()) {
    Segment fresh = Segment::create(local_world);
    copy_state(segment, fresh);
    segment = std::move(fresh);
  }
  segment.generation_ = segment.control().generation.load();
  return segment;
}

}  // namespace lockstep::base
