#pragma once

// Schedules that multiply: the rate is base_lr times a factor that depends on t alone, which is `at(1, t).lr`.
//
// `ratio(n)` is the factor of step n (from 1) over that of step n-1, as Python computes it: what a step does to a rate
// that other schedules change too (ChainedScheduler).
//
// at() checks the options as check() does: UsageError for one that is out of its range.

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/optim/schedules/schedule.h"

namespace lockstep::optim {

/// `factor` until t reaches total_iters, then 1. From 0 no factor leads back: then UsageError from total_iters on.
struct ConstantLR {
  double factor = 1.0 / 3;       ///< in [0, 1]
  std::int64_t total_iters = 5;  ///< at least 1

  Rate at(double base_lr, std::uint64_t t) const;
  double ratio(std::uint64_t n) const;
};

/// From start_factor to end_factor in total_iters equal steps, then end_factor: the usual warm-up.
struct LinearLR {
  double start_factor = 1.0 / 3;  ///< in (0, 1]
  double end_factor = 1;          ///< in [0, 1]
  std::int64_t total_iters = 5;   ///< at least 1

  Rate at(double base_lr, std::uint64_t t) const;
  double ratio(std::uint64_t n) const;
};

/// gamma ^ ⌊t / step_size⌋.
struct StepLR {
  std::int64_t step_size = 0;  ///< at least 1; must be given
  double gamma = 0.1;          ///< at least 0

  Rate at(double base_lr, std::uint64_t t) const;
  double ratio(std::uint64_t n) const;
};

/// gamma ^ (number of milestones at most t).
struct MultiStepLR {
  std::vector<std::int64_t> milestones = {};  ///< from 0, not decreasing; one that is there twice counts twice
  double gamma = 0.1;                         ///< at least 0

  Rate at(double base_lr, std::uint64_t t) const;
  double ratio(std::uint64_t n) const;
};

/// gamma ^ t.
struct ExponentialLR {
  double gamma = kNotGiven;  ///< at least 0; must be given

  Rate at(double base_lr, std::uint64_t t) const;
  double ratio(std::uint64_t n) const;
};

/// (1 - t / total_iters) ^ power, and from total_iters on what it is there: 0, unless power is 0.
struct PolynomialLR {
  std::int64_t total_iters = 5;  ///< at least 1
  double power = 1;              ///< at least 0

  Rate at(double base_lr, std::uint64_t t) const;
  double ratio(std::uint64_t n) const;
};

/// lr_lambda(t). Chained, it sets the rate rather than multiplying it, as in Python: it has no ratio().
struct LambdaLR {
  std::function<double(std::uint64_t t)> lr_lambda = {};  ///< must be given; the same on all ranks

  Rate at(double base_lr, std::uint64_t t) const;
};

/// The product of lr_lambda(1) ... lr_lambda(t). at() calls it t times; where the product is known, use LambdaLR.
struct MultiplicativeLR {
  std::function<double(std::uint64_t n)> lr_lambda = {};  ///< must be given; the same on all ranks

  Rate at(double base_lr, std::uint64_t t) const;
  double ratio(std::uint64_t n) const;
};

/// UsageError naming option, value and what would be right when one is out of its range.
void check(const ConstantLR& schedule);
void check(const LinearLR& schedule);
void check(const StepLR& schedule);
void check(const MultiStepLR& schedule);
void check(const ExponentialLR& schedule);
void check(const PolynomialLR& schedule);
void check(const LambdaLR& schedule);
void check(const MultiplicativeLR& schedule);

}  // namespace lockstep::optim
