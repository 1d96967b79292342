#pragma once

// Our input path, timed.

#include <cstdint>
#include <memory>

#include "benchmarks/input/input_case.h"

namespace lockstep::bench {

/// What a turn took, in seconds.
struct TurnTime {
  double whole = 0;
  double waiting = 0;  ///< of it, the consumer in Loader::next()
};

/// One pass over `samples` samples (a multiple of the batch size) of shuffled epochs through the Loader,
/// as a trainer without a training step would make.
TurnTime our_turn(const std::shared_ptr<const data::PictureBatches>& batches, const InputOptions& options,
                  std::int64_t samples);

/// Where the time of a sample goes in one thread, in seconds.
struct SampleTime {
  double get = 0;        ///< PictureSet::get(): what a file or memory costs
  double transform = 0;  ///< Compose, with the decoding when it is deferred to it
  double normalize = 0;  ///< the last pass
};

/// The mean over `samples` samples in random order.
SampleTime split_of(const InputCase& input, std::int64_t samples);

}  // namespace lockstep::bench
