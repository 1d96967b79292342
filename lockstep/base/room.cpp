#include "lockstep/base/room.h"

#include <algorithm>
#include <iterator>

namespace lockstep::base {

bool ask_for_room(ControlPage& page) {
  const std::uint32_t generation = page.generation.load(std::memory_order_acquire);
  const auto is_theirs = [generation](const RegionWords& region) {
    return committed(region) && region.generation.load(std::memory_order_acquire) == generation;
  };
  if (!std::any_of(std::begin(page.regions), std::end(page.regions), is_theirs)) return false;
  page.room.store(generation, std::memory_order_release);
  return true;
}

bool is_room_wanted(const ControlPage& page, std::uint32_t generation) {
  return page.room.load(std::memory_order_relaxed) == generation;
}

// Nobody's: an agent has asked.
void make_room(ControlPage& page, std::uint32_t generation) {
  raise_abort(page, generation,
              {.rank = -1, .cause = "the job makes room for another node", .exit_code = kExitStopped});
}

bool makes_room(const Failure& failure) { return failure.rank == -1 && failure.exit_code == kExitStopped; }

bool has_made_room(const ControlPage& page) {
  const std::uint32_t generation = page.generation.load(std::memory_order_acquire);
  const Mark written = make_mark(generation, std::uint64_t(ErrorSlot::State::written));
  return page.error.state.load(std::memory_order_acquire) == written && makes_room(read_failure(page, generation));
}

}  // namespace lockstep::base
