#pragma once

// A rate that rises and falls between two bounds. Smith, "Cyclical Learning Rates for Training Neural Networks",
// arXiv 1506.01186.

#include <cstdint>
#include <functional>
#include <optional>

#include "lockstep/optim/schedules/schedule.h"

namespace lockstep::optim {

/// With x = t / (step_size_up + step_size_down), the part p of the way up rises from 0 to 1 in step_size_up and falls
/// back in step_size_down, and the rate is base_lr + (max_lr - base_lr) · p · scale; the momentum the other way round,
/// max_momentum - (max_momentum - base_momentum) · p · scale. The rate that the optimizer was given plays no part.
struct CyclicLR {
  enum class Mode {
    triangular,   ///< scale 1
    triangular2,  ///< scale 1/2^(cycles before)
    exp_range     ///< scale gamma^t
  };
  enum class ScaleMode { cycle, iterations };

  double base_lr = kNotGiven;                       ///< at least 0; must be given
  double max_lr = kNotGiven;                        ///< at least 0; must be given
  std::int64_t step_size_up = 2000;                 ///< at least 1
  std::optional<std::int64_t> step_size_down = {};  ///< at least 0; empty: step_size_up
  Mode mode = Mode::triangular;                     ///< plays no part when there is a scale_fn
  double gamma = 1;                                 ///< at least 0; of exp_range
  std::function<double(double)> scale_fn = {};      ///< of the cycle (from 1) or of t; the same on all ranks
  ScaleMode scale_mode = ScaleMode::cycle;          ///< what scale_fn is asked
  bool cycle_momentum = true;                       ///< false: Rate::momentum is empty
  double base_momentum = 0.8;                       ///< at least 0
  double max_momentum = 0.9;                        ///< at least 0

  /// UsageError for options out of range. The first argument is not used.
  Rate at(double unused, std::uint64_t t) const;
};

/// UsageError naming option, value and what would be right when one is out of its range.
void check(const CyclicLR& schedule);

}  // namespace lockstep::optim
