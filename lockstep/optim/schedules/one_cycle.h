#pragma once

// One rise and one fall over a whole training. Smith and Topin, "Super-Convergence: Very Fast Training of Neural
// Networks Using Large Learning Rates", arXiv 1708.07120; the two phases are fastai's.

#include <cstdint>

#include "lockstep/optim/schedules/schedule.h"

namespace lockstep::optim {

/// The rate goes from max_lr / div_factor at t = 0 to max_lr at pct_start · total_steps - 1, then to
/// max_lr / div_factor / final_div_factor at total_steps - 1. The momentum goes from max_momentum to base_momentum and
/// back. With three_phase the rate comes back to max_lr / div_factor in as many steps as it rose, and then falls to the
/// last value, while the momentum stays. The rate that the optimizer was given plays no part.
struct OneCycleLR {
  enum class Anneal { cos, linear };

  double max_lr = kNotGiven;             ///< at least 0; must be given
  std::int64_t total_steps = 0;          ///< at least 1; 0: epochs · steps_per_epoch
  std::int64_t epochs = 0;               ///< at least 1, unless total_steps is given
  std::int64_t steps_per_epoch = 0;      ///< at least 1, unless total_steps is given
  double pct_start = 0.3;                ///< part of the steps in which the rate rises, in [0, 1]
  Anneal anneal_strategy = Anneal::cos;  ///< the curve between two values
  bool cycle_momentum = true;            ///< false: Rate::momentum is empty
  double base_momentum = 0.85;           ///< at least 0
  double max_momentum = 0.95;            ///< at least 0
  double div_factor = 25;                ///< above 0
  double final_div_factor = 1e4;         ///< above 0
  bool three_phase = false;

  /// UsageError for options out of range and for a t above the total of steps; that t itself is allowed, as in Python,
  /// and lies one step beyond the end of the curve. The first argument is not used.
  Rate at(double unused, std::uint64_t t) const;
};

/// UsageError naming option, value and what would be right when one is out of its range, also where the first phase
/// has no length (pct_start · total_steps is 1), by which Python divides.
void check(const OneCycleLR& schedule);

}  // namespace lockstep::optim
