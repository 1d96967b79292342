#include "lockstep/optim/schedules/plateau.h"

#include <algorithm>
#include <cmath>

#include "lockstep/optim/schedules/require.h"

namespace lockstep::optim {
namespace {

constexpr const char* kPlateau = "ReduceLROnPlateau";

bool is_better(const ReduceLROnPlateau& s, double metric, double best) {
  const bool less = s.mode == ReduceLROnPlateau::Mode::min;
  if (std::isnan(best)) best = less ? HUGE_VAL : -HUGE_VAL;
  if (s.threshold_mode == ReduceLROnPlateau::ThresholdMode::rel)
    return less ? metric < best * (1 - s.threshold) : metric > best * (s.threshold + 1);
  return less ? metric < best - s.threshold : metric > best + s.threshold;
}

void check_count(const char* name, std::int64_t value) {
  require_option(value >= 0, kPlateau, name, value, "at least 0");
}

}  // namespace

void check(const ReduceLROnPlateau& schedule) {
  const double factor = schedule.factor;
  require_option(factor >= 0 && factor < 1, kPlateau, "factor", factor, "in [0, 1)");
  require_option(std::isfinite(schedule.threshold), kPlateau, "threshold", schedule.threshold, "finite");
  require_option(is_amount(schedule.min_lr), kPlateau, "min_lr", schedule.min_lr, "finite and at least 0");
  require_option(is_amount(schedule.eps), kPlateau, "eps", schedule.eps, "finite and at least 0");
  check_count("patience", schedule.patience);
  check_count("cooldown", schedule.cooldown);
}

PlateauState after(const ReduceLROnPlateau& schedule, PlateauState state, double metric) {
  if (is_better(schedule, metric, state.best)) {
    state.best = metric;
    state.num_bad_epochs = 0;
  } else {
    ++state.num_bad_epochs;
  }
  if (state.cooldown_counter > 0) {
    --state.cooldown_counter;
    state.num_bad_epochs = 0;
  }
  if (state.num_bad_epochs > schedule.patience) {
    state.cooldown_counter = schedule.cooldown;
    state.num_bad_epochs = 0;
    ++state.reductions;
  }
  return state;
}

bool ReduceLROnPlateau::step(double metric) {
  check(*this);
  const std::int64_t before = state.reductions;
  state = after(*this, state, metric);
  return state.reductions > before;
}

Rate ReduceLROnPlateau::at(double base_lr) const {
  check(*this);
  double lr = base_lr;
  for (std::int64_t n = 0; n < state.reductions; ++n) {
    const double reduced = std::max(lr * factor, min_lr);
    if (!(lr - reduced > eps)) break;  // nor would any later reduction
    lr = reduced;
  }
  return {.lr = lr};
}

}  // namespace lockstep::optim
