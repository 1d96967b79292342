#pragma once

// Observers for a Trainer.

#include <cstdint>
#include <string>

#include "lockstep/train/trainer.h"

namespace lockstep::train {

struct EarlyStoppingOptions {
  std::string monitor = "loss";  ///< what of Found
  std::int64_t patience = 10;    ///< evaluations without a better one, after which training ends; >= 1
  bool smaller_is_better = true;
  double min_delta = 0;  ///< what is better by no more is not better; >= 0
};

/// Ends training when evaluations no longer get better. Its count is part of the state: it goes on behind a restart or
/// a checkpoint. UsageError for options out of range, and at the first evaluation that has not found `monitor`.
TrainerObserver early_stopping(const EarlyStoppingOptions& options);

/// Ends training behind the first step that ends so many seconds or more after run() was called, by the clock of any
/// rank. Each attempt of a job counts anew. UsageError unless more than 0.
TrainerObserver time_limit(double seconds);

/// Says on standard output how it goes, on rank 0: each `every` steps (0: never) loss, rate, the norm of the gradients
/// where the step asks for it, and samples per second since the line before, and each evaluation. A terminal that
/// stands still holds up no step: lines of steps are dropped meanwhile, those of evaluations wait, 10 s at the end at
/// most.
TrainerObserver console(const parallel::Engine& engine, std::uint64_t every = 100);

}  // namespace lockstep::train
