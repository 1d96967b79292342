#include "lockstep/optim/schedules/cyclic.h"

#include <cmath>

#include "lockstep/optim/schedules/require.h"

namespace lockstep::optim {
namespace {

void check_amount(const char* name, double value) {
  require_option(is_amount(value), "CyclicLR", name, value, "finite and at least 0");
}

double scale(const CyclicLR& s, double cycle, double t) {
  if (s.scale_fn) return s.scale_fn(s.scale_mode == CyclicLR::ScaleMode::cycle ? cycle : t);
  switch (s.mode) {
    case CyclicLR::Mode::triangular2:
      return 1 / std::pow(2, cycle - 1);
    case CyclicLR::Mode::exp_range:
      return std::pow(s.gamma, t);
    case CyclicLR::Mode::triangular:
      break;
  }
  return 1;
}

}  // namespace

void check(const CyclicLR& schedule) {
  check_amount("base_lr", schedule.base_lr);
  check_amount("max_lr", schedule.max_lr);
  require_option(schedule.step_size_up >= 1, "CyclicLR", "step_size_up", schedule.step_size_up, "at least 1");
  const std::int64_t down = schedule.step_size_down.value_or(1);
  require_option(down >= 0, "CyclicLR", "step_size_down", down, "at least 0");
  check_amount("gamma", schedule.gamma);
  check_amount("base_momentum", schedule.base_momentum);
  check_amount("max_momentum", schedule.max_momentum);
}

Rate CyclicLR::at(double, std::uint64_t t) const {
  check(*this);
  const double up = double(step_size_up), total = up + double(step_size_down.value_or(step_size_up));
  // Python's order of operations: at the edge of a cycle a rounding decides on which side t is.
  const double turns = 1 + double(t) / total, cycle = std::floor(turns), x = turns - cycle, top = up / total;
  const double way = x <= top ? x / top : (x - 1) / (top - 1);
  const double scaled = scale(*this, cycle, double(t));
  Rate rate{.lr = base_lr + (max_lr - base_lr) * way * scaled};
  if (cycle_momentum) rate.momentum = max_momentum - (max_momentum - base_momentum) * way * scaled;
  return rate;
}

}  // namespace lockstep::optim
