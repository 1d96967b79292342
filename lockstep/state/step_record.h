#pragma once

// What a step and its shards leave behind, apart from the state itself. Part of a user's interface.

#include <cstdint>

namespace lockstep::state {

/// Of a committed step.
struct StepRecord {
  std::uint64_t step = 0;
  double loss = 0;            ///< tree mean of the shard means, before the update; NaN: none was recorded
  double gradient_norm = 0;   ///< of the mean gradients before clipping, by norm_type; 0: the step asked for none
  std::int64_t samples = 0;   ///< of the whole global batch
  std::uint64_t skipped = 0;  ///< 1: a gradient was not finite under a scaled loss, so nothing was updated
};

/// What a rank is asked for before it comes to a step: bits of ShardRecord::asked.
inline constexpr std::uint64_t kAskedToStop = 1;      ///< base/stop_on.h
inline constexpr std::uint64_t kAskedToMakeRoom = 2;  ///< base/room.h
inline constexpr std::uint64_t kHeldFromRoom = 4;     ///< somebody on its node holds the state (pin.h), to save it

/// What a shard contributes to it.
struct ShardRecord {
  double loss = 0;
  std::int64_t samples = 0;
  std::uint64_t options = 0;  ///< a hash of what its rank told the step, but for the denominator
  double denominator = 0;     ///< what the shard adds to that of the job; not a number: its rank gave none
  std::uint64_t asked = 0;    ///< what its rank was asked for, and whether it is held: the bits above
  std::uint64_t rules = 0;    ///< a hash of the options of its rank's optimizer
  std::uint64_t replica = 0;  ///< what its rank adds to the hash of its node's state, where those are compared
  std::uint64_t again = 0;    ///< 1: its rank has other gradients than those that went out in waves
};

}  // namespace lockstep::state
