#include "lockstep/state/pin.h"

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/pin.h"

namespace lockstep::state {
namespace {

base::Commit committed_in(const base::RegionWords& words) {
  const auto commit = base::committed(words);
  if (!commit) throw UsageError("pin: this region of the segment holds no state yet");
  return *commit;
}

}  // namespace

Pin::Pin(const base::Segment& segment, int region) {
  const base::RegionWords& words = base::region_words(segment.control(), region);
  base::Commit before = committed_in(words);
  if (const std::uint32_t buffers = words.buffers.load(); buffers < 3)
    throw UsageError("pin: the state has " + std::to_string(buffers) +
                     " buffers, must have 3: the committed one, the one that a step writes, the pinned one");
  // Each turn but the last means that a step was committed meanwhile.
  for (;; before = commit_) {
    region_ = base::pin_buffer(segment, region, int(before.buffer));
    commit_ = committed_in(words);
    if (commit_.buffer == before.buffer) return;
  }
}

}  // namespace lockstep::state
