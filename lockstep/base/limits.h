#pragma once

// Constants alone: kernels built for one instruction set include it, and must not bring along inline functions.

namespace lockstep::base {

/// Ranks of one node, at most.
inline constexpr int kMaxLocalRanks = 512;

}  // namespace lockstep::base
