#pragma once

// Cosines: S(x) = (1 + cos(πx)) / 2 falls from 1 at x = 0 to 0 at x = 1. Loshchilov and Hutter, "SGDR: Stochastic
// Gradient Descent with Warm Restarts", arXiv 1608.03983, equation 5.
//
// at() checks the options as check() does: UsageError for one that is out of its range.

#include <cstdint>

#include "lockstep/optim/schedules/schedule.h"

namespace lockstep::optim {

/// eta_min + (base_lr - eta_min) · S(t / T_max). Beyond T_max the rate rises again, to base_lr at 2·T_max, and so on:
/// for a rate that stays down, let the steps end at T_max, or put it into a SequentialLR.
struct CosineAnnealingLR {
  std::int64_t T_max = 0;  ///< at least 1; must be given
  double eta_min = 0;      ///< finite

  Rate at(double base_lr, std::uint64_t t) const;
  /// The rate of step n (from 1), given that of the step before, as Python computes it: what a step does to a rate
  /// that other schedules change too (ChainedScheduler).
  double next(double lr, double base_lr, std::uint64_t n) const;
};

/// eta_min + (base_lr - eta_min) · S(steps since the last restart / length of the cycle). Cycles are T_0, T_0·T_mult,
/// T_0·T_mult², ... long. Cost: the number of restarts, unless T_mult is 1.
struct CosineAnnealingWarmRestarts {
  std::int64_t T_0 = 0;     ///< at least 1; must be given
  std::int64_t T_mult = 1;  ///< at least 1
  double eta_min = 0;       ///< finite

  Rate at(double base_lr, std::uint64_t t) const;
};

/// UsageError naming option, value and what would be right when one is out of its range.
void check(const CosineAnnealingLR& schedule);
void check(const CosineAnnealingWarmRestarts& schedule);

}  // namespace lockstep::optim
