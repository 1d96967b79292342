#include "lockstep/base/generation.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/published_text.h"

namespace lockstep::base {
namespace {

// What lies between the areas or behind the last one is of somebody who died before he could say that it is his, or
// before he could free what an area has left. Nobody takes memory now: the generation that might is over and dead.
void free_what_is_nobodys(const Segment& segment) {
  std::vector<Extent> areas;
  for (int area = 0; area < kAreas; ++area)
    if (const Extent place = segment.extent(Area(area)); place.bytes > 0) areas.push_back(place);
  std::ranges::sort(areas, {}, &Extent::offset);
  std::size_t end = (kControlBytes + Extent::kUnit - 1) / Extent::kUnit * Extent::kUnit;
  for (const Extent& area : areas) {
    if (area.offset > end)
      fallocate(segment.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(end), off_t(area.offset - end));
    end = area.end();
  }
  // Not a hole: Segment::grow takes what is within the file's size for memory that is there.
  struct stat status {};
  if (fstat(segment.fd(), &status) != 0) throw_errno("segment: fstat");
  if (std::size_t(status.st_size) > end && ftruncate(segment.fd(), off_t(end)) != 0) throw_errno("segment: ftruncate");
}

// The state is in the committed buffer, which nobody writes to any more: the generation that might is over, so
// it commits nothing, and who has not seen a commit writes to the other buffers only.
void copy_region(const Segment& from, Segment& to, int region) {
  const RegionWords& old_words = from.control().regions[region];
  RegionWords& words = to.control().regions[region];
  const std::uint64_t fingerprint = old_words.fingerprint.load(std::memory_order_acquire);
  // Of one that was forgotten, too: what comes in its place goes before what others have of fewer attempts.
  words.model.store(old_words.model.load());
  words.attempts.store(old_words.attempts.load());
  if (fingerprint == 0) return;
  const Extent old_place = from.extent(state_area(region));
  const std::uint64_t room = from.control().rooms[std::size_t(state_area(region))].load();
  const std::size_t offset = to.grow(state_area(region), old_place.bytes, room);
  std::memcpy(to.map(offset, old_place.bytes, Access::read_write).data(),
              from.map(old_place.offset, old_place.bytes, Access::read_only).data(), old_place.bytes);
  words.commit.store(old_words.commit.load());
  words.generation.store(old_words.generation.load());
  words.buffers.store(old_words.buffers.load());
  words.spread.store(old_words.spread.load());
  words.set.store(old_words.set.load());
  words.shares.store(old_words.shares.load());
  words.share.store(old_words.share.load());
  words.copied.store(old_words.copied.load());
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
  if (!segment.is_held()) {
    free_what_is_nobodys(segment);
    return begun(std::move(segment));
  }
  Segment fresh = Segment::create(local_world);
  copy_state(segment, fresh);
  return begun(std::move(fresh));
}

}  // namespace lockstep::base
