#include "lockstep/optim/schedules/one_cycle.h"

#include <array>
#include <cmath>
#include <numbers>
#include <string>

#include "lockstep/optim/schedules/require.h"

namespace lockstep::optim {
namespace {

constexpr const char* kOneCycle = "OneCycleLR";

// Rate and momentum where one phase ends and the next begins.
struct Corner {
  double t;
  double lr;
  double momentum;
};

std::int64_t total_of(const OneCycleLR& s) { return s.total_steps != 0 ? s.total_steps : s.epochs * s.steps_per_epoch; }

// The four corners; without three_phase the last one is there twice.
std::array<Corner, 4> corners(const OneCycleLR& s) {
  const double total = double(total_of(s)), initial = s.max_lr / s.div_factor, least = initial / s.final_div_factor;
  const Corner begin{0, initial, s.max_momentum}, top{s.pct_start * total - 1, s.max_lr, s.base_momentum},
      back{2 * s.pct_start * total - 2, initial, s.max_momentum}, end{total - 1, least, s.max_momentum};
  return {begin, top, s.three_phase ? back : end, end};
}

double between(OneCycleLR::Anneal curve, double from, double to, double part) {
  if (curve == OneCycleLR::Anneal::linear) return (to - from) * part + from;
  return to + (from - to) / 2 * (std::cos(std::numbers::pi * part) + 1);
}

Rate rate_at(const OneCycleLR& s, double t) {
  const std::array<Corner, 4> all = corners(s);
  const std::size_t last = s.three_phase ? 3 : 2;
  std::size_t to = 1;
  while (to < last && t > all[to].t) ++to;
  const Corner &a = all[to - 1], &b = all[to];
  require_option(a.t != b.t, kOneCycle, "pct_start", s.pct_start,
                 "a part of total_steps that gives each phase a length");
  const double part = (t - a.t) / (b.t - a.t);
  Rate rate{.lr = between(s.anneal_strategy, a.lr, b.lr, part)};
  if (s.cycle_momentum) rate.momentum = between(s.anneal_strategy, a.momentum, b.momentum, part);
  return rate;
}

void check_amount(const char* name, double value, bool zero_too) {
  const bool fine = is_amount(value) && (zero_too || value > 0);
  require_option(fine, kOneCycle, name, value, zero_too ? "finite and at least 0" : "finite and above 0");
}

void check_options(const OneCycleLR& s) {
  check_amount("max_lr", s.max_lr, true);
  require_option(s.total_steps >= 0, kOneCycle, "total_steps", s.total_steps,
                 "at least 1 (0: epochs * steps_per_epoch)");
  if (s.total_steps == 0) {
    require_option(s.epochs >= 1, kOneCycle, "epochs", s.epochs, "at least 1, or total_steps given");
    require_option(s.steps_per_epoch >= 1, kOneCycle, "steps_per_epoch", s.steps_per_epoch,
                   "at least 1, or total_steps given");
  }
  require_option(s.pct_start >= 0 && s.pct_start <= 1, kOneCycle, "pct_start", s.pct_start, "in [0, 1]");
  check_amount("base_momentum", s.base_momentum, true);
  check_amount("max_momentum", s.max_momentum, true);
  check_amount("div_factor", s.div_factor, false);
  check_amount("final_div_factor", s.final_div_factor, false);
}

}  // namespace

void check(const OneCycleLR& schedule) {
  check_options(schedule);
  (void)rate_at(schedule, 0);
}

Rate OneCycleLR::at(double, std::uint64_t t) const {
  check_options(*this);
  const std::int64_t total = total_of(*this);
  if (t > std::uint64_t(total)) {
    const std::string right = "at most the " + std::to_string(total) + " steps of the schedule";
    require_option(false, kOneCycle, "t", std::to_string(t), right.c_str());
  }
  return rate_at(*this, double(t));
}

}  // namespace lockstep::optim
