#pragma once

// Learning rates as functions of the step, or of the epoch: whatever the caller counts. A schedule is a value without
// memory of the steps before: `schedule.at(base_lr, t)` is right after a restart, and on every rank.
//
//   const lockstep::optim::Schedule schedule = lockstep::optim::StepLR{.step_size = 30, .gamma = 0.1};
//   optimizer.set_lr(schedule, ddp.steps());
//
// Names, options and defaults are those of torch.optim.lr_scheduler (2.11); an option that Python wants has no default
// here either. at(base_lr, t) is what Python's get_last_lr() has after t calls of scheduler.step() on an optimizer made
// with lr=base_lr. Python mostly multiplies from step to step, and gathers a rounding at each; ours are closed forms
// unless a class says otherwise, and differ from Python's values by those roundings: a few 1e-16 of the rate per step.

#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace lockstep::optim {

/// The default of an option that must be given, and is no whole number.
inline constexpr double kNotGiven = std::numeric_limits<double>::quiet_NaN();

/// What a schedule says of a step.
struct Rate {
  double lr = 0;
  std::optional<double> momentum = {};  ///< SGD's momentum, Adam's beta1; empty: the schedule leaves it as it is
};

/// A type with `Rate at(double base_lr, std::uint64_t t) const`.
template <class S>
concept ScheduleValue = requires(const S& schedule, double base_lr, std::uint64_t t) {
  { schedule.at(base_lr, t) } -> std::convertible_to<Rate>;
};

/// A function of base rate and t, which returns a rate as a number or as a Rate.
template <class F>
concept RateFunction = std::is_invocable_r_v<double, const F&, double, std::uint64_t> ||
    std::is_invocable_r_v<Rate, const F&, double, std::uint64_t>;

/// A function as a schedule.
template <RateFunction F>
struct FunctionSchedule {
  F function;
  Rate at(double base_lr, std::uint64_t t) const {
    if constexpr (std::is_invocable_r_v<double, const F&, double, std::uint64_t>)
      return {.lr = function(base_lr, t)};
    else
      return function(base_lr, t);
  }
};

/// Any schedule. Copies share what they hold, which nobody changes; so threads may ask at once, if a function given to
/// it may be called by several.
class Schedule {
 public:
  /// UsageError naming option, value and what would be right when one is out of its range.
  template <ScheduleValue S>
  requires(!std::same_as<S, Schedule>) Schedule(S schedule)  // NOLINT: meant to convert
      : held_(std::make_shared<const HeldAs<S>>(std::move(schedule))) {}
  template <RateFunction F>
  Schedule(F function) : Schedule(FunctionSchedule<F>{std::move(function)}) {}  // NOLINT: meant to convert

  /// The rate at t, counted from 0, of weights whose optimizer was given base_lr. UsageError where Python has an error.
  Rate at(double base_lr, std::uint64_t t) const { return held_->at(base_lr, t); }

  /// By what step n (from 1) multiplies the rate, whatever it is; empty for a schedule that does more than multiply. A
  /// schedule of one's own that has `double ratio(std::uint64_t n) const` multiplies.
  std::optional<double> ratio(std::uint64_t n) const { return held_->ratio(n); }

  /// What it holds, if that is an S; otherwise null.
  template <class S>
  const S* target() const {
    const auto* held = dynamic_cast<const HeldAs<S>*>(held_.get());
    return held == nullptr ? nullptr : &held->schedule;
  }

 private:
  struct Held {
    virtual ~Held() = default;
    virtual Rate at(double base_lr, std::uint64_t t) const = 0;
    virtual std::optional<double> ratio(std::uint64_t n) const = 0;
  };

  template <class S>
  struct HeldAs final : Held {
    explicit HeldAs(S s) : schedule(std::move(s)) {
      if constexpr (requires { check(schedule); }) check(schedule);
    }
    Rate at(double base_lr, std::uint64_t t) const override { return schedule.at(base_lr, t); }
    std::optional<double> ratio(std::uint64_t n) const override {
      if constexpr (requires { schedule.ratio(n); })
        return schedule.ratio(n);
      else
        return {};
    }
    S schedule;
  };

  std::shared_ptr<const Held> held_;
};

}  // namespace lockstep::optim
