#include "lockstep/optim/schedules/factors.h"

#include <algorithm>
#include <cmath>

#include "lockstep/optim/schedules/require.h"

namespace lockstep::optim {
namespace {

void check_iterations(const char* schedule, std::int64_t total_iters) {
  require_option(total_iters >= 1, schedule, "total_iters", total_iters, "at least 1");
}

void check_gamma(const char* schedule, double gamma) {
  require_option(is_amount(gamma), schedule, "gamma", gamma, "finite and at least 0");
}

bool is_part(double factor) { return factor >= 0 && factor <= 1; }

}  // namespace

void check(const ConstantLR& schedule) {
  require_option(is_part(schedule.factor), "ConstantLR", "factor", schedule.factor, "in [0, 1]");
  check_iterations("ConstantLR", schedule.total_iters);
}

Rate ConstantLR::at(double base_lr, std::uint64_t t) const {
  check(*this);
  if (t < std::uint64_t(total_iters)) return {.lr = base_lr * factor};
  (void)ratio(std::uint64_t(total_iters));
  return {.lr = base_lr};
}

double ConstantLR::ratio(std::uint64_t n) const {
  if (n != std::uint64_t(total_iters)) return 1;
  require_option(factor > 0, "ConstantLR", "factor", factor, "above 0 where t reaches total_iters");
  return 1 / factor;
}

void check(const LinearLR& schedule) {
  const double start = schedule.start_factor, end = schedule.end_factor;
  require_option(is_part(start) && start > 0, "LinearLR", "start_factor", start, "in (0, 1]");
  require_option(is_part(end), "LinearLR", "end_factor", end, "in [0, 1]");
  check_iterations("LinearLR", schedule.total_iters);
}

Rate LinearLR::at(double base_lr, std::uint64_t t) const {
  check(*this);
  const double done = double(std::min(t, std::uint64_t(total_iters)));
  return {.lr = base_lr * (start_factor + (end_factor - start_factor) * done / double(total_iters))};
}

double LinearLR::ratio(std::uint64_t n) const {
  if (n > std::uint64_t(total_iters)) return 1;
  const double change = end_factor - start_factor;
  return 1 + change / (double(total_iters) * start_factor + (double(n) - 1) * change);
}

void check(const StepLR& schedule) {
  require_option(schedule.step_size >= 1, "StepLR", "step_size", schedule.step_size, "at least 1");
  check_gamma("StepLR", schedule.gamma);
}

Rate StepLR::at(double base_lr, std::uint64_t t) const {
  check(*this);
  return {.lr = base_lr * std::pow(gamma, double(t / std::uint64_t(step_size)))};
}

double StepLR::ratio(std::uint64_t n) const { return n % std::uint64_t(step_size) == 0 ? gamma : 1; }

void check(const MultiStepLR& schedule) {
  std::int64_t least = 0;
  for (const std::int64_t milestone : schedule.milestones) {
    require_option(milestone >= least, "MultiStepLR", "a milestone", milestone, "at least 0 and those before it");
    least = milestone;
  }
  check_gamma("MultiStepLR", schedule.gamma);
}

Rate MultiStepLR::at(double base_lr, std::uint64_t t) const {
  check(*this);
  const auto reached =
      std::count_if(milestones.begin(), milestones.end(), [t](std::int64_t m) { return std::uint64_t(m) <= t; });
  return {.lr = base_lr * std::pow(gamma, double(reached))};
}

double MultiStepLR::ratio(std::uint64_t n) const {
  return std::pow(gamma, double(std::count(milestones.begin(), milestones.end(), std::int64_t(n))));
}

void check(const ExponentialLR& schedule) { check_gamma("ExponentialLR", schedule.gamma); }

Rate ExponentialLR::at(double base_lr, std::uint64_t t) const {
  check(*this);
  return {.lr = base_lr * std::pow(gamma, double(t))};
}

double ExponentialLR::ratio(std::uint64_t) const { return gamma; }

void check(const PolynomialLR& schedule) {
  check_iterations("PolynomialLR", schedule.total_iters);
  require_option(is_amount(schedule.power), "PolynomialLR", "power", schedule.power, "finite and at least 0");
}

Rate PolynomialLR::at(double base_lr, std::uint64_t t) const {
  check(*this);
  const double done = double(std::min(t, std::uint64_t(total_iters)));
  return {.lr = base_lr * std::pow(1 - done / double(total_iters), power)};
}

double PolynomialLR::ratio(std::uint64_t n) const {
  if (n > std::uint64_t(total_iters)) return 1;
  const double now = 1 - double(n) / double(total_iters), before = 1 - (double(n) - 1) / double(total_iters);
  return std::pow(now / before, power);
}

void check(const LambdaLR& schedule) {
  require_option(schedule.lr_lambda != nullptr, "LambdaLR", "lr_lambda", kNotGiven, "a function of t");
}

Rate LambdaLR::at(double base_lr, std::uint64_t t) const {
  check(*this);
  return {.lr = base_lr * lr_lambda(t)};
}

void check(const MultiplicativeLR& schedule) {
  require_option(schedule.lr_lambda != nullptr, "MultiplicativeLR", "lr_lambda", kNotGiven, "a function of the step");
}

Rate MultiplicativeLR::at(double base_lr, std::uint64_t t) const {
  check(*this);
  double lr = base_lr;
  for (std::uint64_t n = 1; n <= t; ++n) lr *= lr_lambda(n);
  return {.lr = lr};
}

double MultiplicativeLR::ratio(std::uint64_t n) const { return lr_lambda(n); }

}  // namespace lockstep::optim
