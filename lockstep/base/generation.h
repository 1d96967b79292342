#pragma once

// The fence between the generations of a job. The launcher's agent calls it between attempts.

#include "lockstep/base/segment.h"

namespace lockstep::base {

/// The segment for the next generation, of `local_world` ranks: it has the committed state and nothing else of the
/// last.
///
/// It is the same memory when nobody holds it any more (Segment::hold), less what belongs to no area: who died while
/// he took or freed memory has left it. Otherwise some process of the last generation lives, perhaps stopped in the
/// middle of a store that no check can take back: then it is a new segment with a copy, and that process keeps the old
/// one to itself. Throws UsageError when memory for the copy is short; `segment` is whole then, and has the committed
/// state.
Segment next_generation(Segment&& segment, int local_world);

}  // namespace lockstep::base
