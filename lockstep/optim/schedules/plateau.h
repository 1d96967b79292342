#pragma once

// ReduceLROnPlateau: the rate falls when a metric no longer gets better. Its decisions depend on what the training has
// brought, not on the step; so they are the one thing here that has to be kept with the state.
//
//   lockstep::optim::ReduceLROnPlateau plateau{.factor = 0.5, .patience = 3};
//   ddp.state().keep("plateau", plateau.state);  // on all ranks, before the optimizer is made
//   lockstep::optim::SGD optimizer(ddp, {.lr = 0.1});
//   for (...) {                                  // epochs
//     optimizer.set_lr(plateau, 0);  // each group from its own rate
//     ...
//     plateau.step(loss);        // the same number on all ranks: that of an evaluation, not of a rank's batch
//     ddp.state().recommit();    // or with the next step
//   }

#include <cstdint>
#include <limits>
#include <type_traits>

#include "lockstep/optim/schedules/schedule.h"

namespace lockstep::optim {

/// What the metrics so far have decided.
struct PlateauState {
  double best = std::numeric_limits<double>::quiet_NaN();  ///< the best metric; not a number: none yet
  std::int64_t num_bad_epochs = 0;                         ///< since the best, the last reduction or the cooldown
  std::int64_t cooldown_counter = 0;                       ///< metrics yet to come that cannot be bad
  std::int64_t reductions = 0;
};
static_assert(std::is_trivially_copyable_v<PlateauState>);

struct ReduceLROnPlateau {
  enum class Mode { min, max };
  enum class ThresholdMode { rel, abs };

  Mode mode = Mode::min;                              ///< whether less or more is better
  double factor = 0.1;                                ///< in [0, 1)
  std::int64_t patience = 10;                         ///< bad metrics that are borne, at least 0
  double threshold = 1e-4;                            ///< by how much a better metric must be better; finite
  ThresholdMode threshold_mode = ThresholdMode::rel;  ///< a part of the best one, or a difference to it
  std::int64_t cooldown = 0;                          ///< metrics behind a reduction that cannot be bad; at least 0
  double min_lr = 0;                                  ///< no reduction goes below; at least 0
  double eps = 1e-8;                                  ///< a reduction by no more than this is left out; at least 0
  PlateauState state = {};

  /// Takes the metric of an epoch; true when it brings a reduction. A metric that is not a number is a bad one.
  /// UsageError for options out of range; then nothing has changed.
  bool step(double metric);

  /// The rate of weights whose optimizer was given base_lr: max(rate · factor, min_lr) as often as there were
  /// reductions, where it differs by more than eps. Depends on options and state alone. UsageError as step().
  Rate at(double base_lr) const;
  /// The same at any t: for set_lr(plateau, 0). A Schedule made of it has its state as it is then; so it is made anew
  /// for each rate that is set, and is no member of a list of schedules.
  Rate at(double base_lr, std::uint64_t) const { return at(base_lr); }
};

/// The state behind a metric, as ReduceLROnPlateau::step() has it; schedule.state plays no part.
PlateauState after(const ReduceLROnPlateau& schedule, PlateauState state, double metric);

/// UsageError naming option, value and what would be right when one is out of its range.
void check(const ReduceLROnPlateau& schedule);

}  // namespace lockstep::optim
