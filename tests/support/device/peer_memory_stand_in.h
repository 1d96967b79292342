#pragma once

// A stand-in for CUDA's functions of memory that processes share, over the host's shared memory, which is that of the
// stand-in device too.

#include "lockstep/device/peer_memory.h"

namespace lockstep::testing::sim {

lockstep::device::PeerMemory peer_memory();

/// How many areas of other processes this process has open.
int opened_areas();

}  // namespace lockstep::testing::sim
