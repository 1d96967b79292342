#include "lockstep/base/generation.h"

#include <cstring>
#include <string>
#include <utility>

#include "lockstep/base/published_text.h"

namespace lockstep::base {
namespace {

// The state is in the committed buffer, which nobody writes to any more: the generation that might is over, so
// it commits nothing, and who has not seen a commit writes to the other buffers only.
void copy_region(const Segment& from, Segment& to, int region) {
  const RegionWords& old_words = from.control().regions[region];
  const std::uint64_t fingerprint = old_words.fingerprint.load(std::memory_order_acquire);
  if (fingerprint == 0) return;
  const Extent old_place = from.extent(state_area(region));
  const std::size_t offset = to.grow(state_area(region), old_place.bytes);
  std::memcpy(to.map(offset, old_place.bytes, Access::read_write).data(),
              from.map(old_place.offset, old_place.bytes, Access::read_only).data(), old_place.bytes);
  RegionWords& words = to.control().regions[region];
  words.commit.store(old_words.commit.load());
  words.generation.store(old_words.generation.load());
  words.buffers.store(old_words.buffers.load());
  words.model.store(old_words.model.load());
  words.spread.store(old_words.spread.load());
  words.fingerprint.store(fingerprint);
}

// Its slot is the next generation's by now, in which nobody can fail yet.
void copy_failure(const ErrorSlot& from, ErrorSlot& to) {
  to.rank = from.rank;
  to.exit_code = from.exit_code;
  to.step = from.step;
  std::memcpy(to.phase, from.phase, sizeof to.phase);
  std::memcpy(to.cause, from.cause, sizeof to.cause);
  to.state.store(from.state.load());
}

void copy_state(const Segment& from, Segment& to) {
  const ControlPage& old_page = from.control();
  ControlPage& page = to.control();
  for (int region = 0; region < kRegions; ++region) copy_region(from, to, region);
  page.generation.store(old_page.generation.load());
  copy_failure(old_page.error, page.error);
  page.data_fingerprint.store(old_page.data_fingerprint.load());
  if (const std::string text = published(from); !text.empty()) publish(to, text);
}

}  // namespace

Segment next_generation(Segment&& segment, int local_world) {
  next_generation(segment.control(), local_world);
  const auto begun = [](Segment next) {
    next.generation_ = next.control().generation.load();
    return next;
  };
  if (!segment.is_held()) return begun(std::move(segment));
  Segment fresh = Segment::create(local_world);
  copy_state(segment, fresh);
  return begun(std::move(fresh));
}

}  // namespace lockstep::base
