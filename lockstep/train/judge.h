#pragma once

// What evaluations decide: the rate of --lr-scheduler reducelronplateau, and when --patience ends the run. Decisions
// are state: committed with the step behind which they were made, so that a restart or a checkpoint goes on with them.

#include <cstdint>
#include <limits>

#include "lockstep/optim/schedules/plateau.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/train/observer.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// What is kept of them.
struct Judgement {
  optim::PlateauState plateau;
  double best = std::numeric_limits<double>::quiet_NaN();  ///< of what --monitor names; not a number: none yet
  std::int64_t worse = 0;                                  ///< evaluations since the best one
  std::int64_t step = 0;                                   ///< of the last evaluation that was heeded
};

/// The judgement behind an evaluation of `step`: unchanged when that step was heeded already. Pure.
Judgement judged(const Options& options, const Judgement& before, const EvalEvent& event);

/// Of one run, on all ranks. Made before the optimizer.
class Judge {
 public:
  /// Makes the judgement a part of the state, where the options ask for one.
  Judge(const Options& options, parallel::Engine& engine);

  /// Behind an evaluation, whose numbers are the same on all ranks. Collective: what is decided is committed.
  void heed(const EvalEvent& event);

  const Judgement& judgement() const { return judgement_; }
  /// The rate of the steps to come. Only with reducelronplateau.
  double lr() const;
  /// Whether --patience is at its end.
  bool ends_run() const;

 private:
  const Options& options_;
  parallel::Engine& engine_;
  Judgement judgement_;
};

}  // namespace lockstep::train
