#include "lockstep/base/last_failure.h"

#include <cstring>

#include "lockstep/base/room.h"

namespace lockstep::base {
namespace {

// A text without its end is one that nobody has finished.
template <std::size_t N>
std::string text_in(const char (&place)[N]) {
  return {place, ::strnlen(place, N)};
}

}  // namespace

std::optional<Failure> last_failure(ControlPage& page) {
  const std::uint32_t generation = page.generation.load(std::memory_order_acquire);
  const Mark free = make_mark(generation, std::uint64_t(ErrorSlot::State::free));
  ErrorSlot& slot = page.error;
  if (slot.state.load(std::memory_order_acquire) != free) return {};
  Failure failure{.rank = slot.rank,
                  .step = slot.step,
                  .phase = text_in(slot.phase),
                  .cause = text_in(slot.cause),
                  .exit_code = slot.exit_code};
  // Who claims it writes over what was read; a change of nothing stands behind the reads, as a load need not.
  if (slot.state.fetch_or(0, std::memory_order_acq_rel) != free || failure.cause.empty()) return {};
  if (makes_room(failure)) return {};
  return failure;
}

}  // namespace lockstep::base
