#include "lockstep/optim/schedules/cosine.h"

#include <cmath>
#include <numbers>

#include "lockstep/optim/schedules/require.h"

namespace lockstep::optim {
namespace {

using std::numbers::pi;

// 2·S(t / period), with Python's roundings: near the bottom the last bit of the angle is many of the result.
double height(double t, double period) { return 1 + std::cos(pi * t / period); }

// A whole period's rise in its first step, from eta_min; there the recursion would divide by 0.
double first_rise(const CosineAnnealingLR& s, double base_lr) {
  return (base_lr - s.eta_min) * (1 - std::cos(pi / double(s.T_max))) / 2;
}

}  // namespace

void check(const CosineAnnealingLR& schedule) {
  require_option(schedule.T_max >= 1, "CosineAnnealingLR", "T_max", schedule.T_max, "at least 1");
  require_option(std::isfinite(schedule.eta_min), "CosineAnnealingLR", "eta_min", schedule.eta_min, "finite");
}

// Python multiplies from step to step by a ratio of heights, in which all but the first and the last cancel. It begins
// anew behind each bottom (T_max, 3·T_max, ...) with first_rise(), which is the height there but for its roundings;
// those stay in the rate until the next bottom, so we begin there too.
Rate CosineAnnealingLR::at(double base_lr, std::uint64_t t) const {
  check(*this);
  const auto period = std::uint64_t(T_max);
  if (t <= period) return {.lr = eta_min + (base_lr - eta_min) * height(double(t), double(T_max)) / 2};
  const std::uint64_t begin = t - (t - period - 1) % (2 * period);
  const double risen = height(double(t), double(T_max)) / height(double(begin), double(T_max));
  return {.lr = eta_min + first_rise(*this, base_lr) * risen};
}

double CosineAnnealingLR::next(double lr, double base_lr, std::uint64_t n) const {
  const auto period = std::uint64_t(T_max);
  if (n > period && (n - period - 1) % (2 * period) == 0) return lr + first_rise(*this, base_lr);
  return eta_min + (lr - eta_min) * height(double(n), double(T_max)) / height(double(n) - 1, double(T_max));
}

void check(const CosineAnnealingWarmRestarts& schedule) {
  const char* const name = "CosineAnnealingWarmRestarts";
  require_option(schedule.T_0 >= 1, name, "T_0", schedule.T_0, "at least 1");
  require_option(schedule.T_mult >= 1, name, "T_mult", schedule.T_mult, "at least 1");
  require_option(std::isfinite(schedule.eta_min), name, "eta_min", schedule.eta_min, "finite");
}

Rate CosineAnnealingWarmRestarts::at(double base_lr, std::uint64_t t) const {
  check(*this);
  // In double: whole numbers are exact up to 2^53, and the length of a cycle beyond cannot wrap round.
  double since = double(T_mult == 1 ? t % std::uint64_t(T_0) : t), length = double(T_0);
  for (; since >= length; length *= double(T_mult)) since -= length;
  return {.lr = eta_min + (base_lr - eta_min) * height(since, length) / 2};
}

}  // namespace lockstep::optim
