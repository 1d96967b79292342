#pragma once

// Schedules made of schedules.
//
// Python's share one number, the optimizer's rate, and the order in which they are made matters: each gives it its
// first value, and CyclicLR and OneCycleLR change what the others take for the base rate. Here the members are made in
// the order of the list, as Python's examples do, and the result is that of Python.
//
// Neither holds another one: in Python a SequentialLR that comes to one fails, or one that begins with one is off by a
// step. And a OneCycleLR has no other CyclicLR or OneCycleLR beside it: in Python they overwrite each other's bounds.

#include <cstdint>
#include <vector>

#include "lockstep/optim/schedules/schedule.h"

namespace lockstep::optim {

/// One after the other: schedulers[i] from milestones[i-1] on, with its own t counted from there.
///
///   SequentialLR{.schedulers = {LinearLR{.total_iters = 500}, CosineAnnealingLR{.T_max = 9500}}, .milestones = {500}}
///
/// A MultiplicativeLR goes on from the rate that it finds; all others begin with that of the base rate. Before and
/// after its time a member's momentum stays what it was last.
struct SequentialLR {
  std::vector<Schedule> schedulers = {};      ///< at least one
  std::vector<std::int64_t> milestones = {};  ///< one less than there are schedulers, at least 1 and increasing

  /// UsageError for options out of range and where a member has one.
  Rate at(double base_lr, std::uint64_t t) const;
};

/// All at once: each step multiplies the rate by what every member's step multiplies it by.
///
///   ChainedScheduler{.schedulers = {LinearLR{.total_iters = 500}, MultiStepLR{.milestones = {3000, 6000}}}}
///
/// CosineAnnealingLR moves what it finds towards eta_min. The schedules without ratio() (LambdaLR, CyclicLR,
/// OneCycleLR, CosineAnnealingWarmRestarts, functions) set the rate anew in each step, in Python as here: whatever
/// stands before them in the list is without effect, and those behind them multiply it by that step's ratio alone.
/// Multiply two schedules of this kind in a function of your own.
///
/// Cost of at(): the number of members; times t with a CosineAnnealingLR whose eta_min is not 0, or beyond its T_max,
/// unless a member sets the rate.
struct ChainedScheduler {
  std::vector<Schedule> schedulers = {};  ///< at least one

  /// UsageError for options out of range and where a member has one.
  Rate at(double base_lr, std::uint64_t t) const;
};

/// UsageError naming option, value and what would be right when one is out of its range.
void check(const SequentialLR& schedule);
void check(const ChainedScheduler& schedule);

}  // namespace lockstep::optim
