#pragma once

// The exponential moving average of the weights (EMA): one more array of the state, which the update writes. When it
// takes in a step's weights is a function of the number of the step, as in torchvision's reference trainers.

#include <cstdint>

#include "lockstep/optim/update.h"

namespace lockstep::parallel {

struct EmaOptions {
  double decay = 0.9999;           ///< average = decay * average + (1 - decay) * weights; in [0, 1]
  std::uint64_t interval = 1;      ///< steps from one to the next; the first takes part
  std::uint64_t warmup_steps = 0;  ///< in these, and in the first that is taken in behind them, it is the weights
  /// Where the interval begins anew, as torchvision's does in each epoch; 0: nowhere.
  std::uint64_t steps_per_epoch = 0;
  /// Averages the module's buffers, too, as torchvision does. False: they are the module's.
  bool use_buffers = true;
};

/// UsageError naming the value when one is out of its range.
void check(const EmaOptions& options);

/// What happens at a step, counted from 1.
optim::Averaging averaging_at(const EmaOptions& options, std::uint64_t step);

}  // namespace lockstep::parallel
