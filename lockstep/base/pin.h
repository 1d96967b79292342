#pragma once

// Pins of state buffers: one that somebody has pinned is the target of no step, for as long as he lives or wants it.
// A pin is a lock (byte_lock.h) on a byte that each buffer of each region has, so no dead process leaves one behind,
// and no word in the segment says how many there are.

#include "lockstep/base/segment.h"

namespace lockstep::base {

/// Pins `buffer` of `region` as long as the mapping that is returned lives, here or in a child that was forked
/// meanwhile: all of the region, to be read, whatever becomes of descriptors. Whether the buffer still holds what it
/// held is to be looked at afterwards (state/pin.h). Any process that has the segment open.
Mapping pin_buffer(const Segment& segment, int region, int buffer);

/// Whether anybody has pinned it. One system call.
bool is_pinned(const Segment& segment, int region, int buffer);

}  // namespace lockstep::base
