#include "lockstep/optim/schedules/composed.h"

#include <algorithm>
#include <optional>
#include <string>

#include "lockstep/optim/schedules/cosine.h"
#include "lockstep/optim/schedules/cyclic.h"
#include "lockstep/optim/schedules/factors.h"
#include "lockstep/optim/schedules/one_cycle.h"
#include "lockstep/optim/schedules/plateau.h"
#include "lockstep/optim/schedules/require.h"

namespace lockstep::optim {
namespace {

using Schedules = std::vector<Schedule>;

// ---- what a member does to the rate that all share

// Whether the rate after a step depends on that before it.
bool moves(const Schedule& s) { return s.ratio(1).has_value() || s.target<CosineAnnealingLR>() != nullptr; }

// Whether t steps together are a factor that does not depend on the rate before them: at(1, t).lr.
bool multiplies(const Schedule& s, std::uint64_t t) {
  if (s.ratio(1)) return true;
  const auto* cosine = s.target<CosineAnnealingLR>();
  return cosine != nullptr && cosine->eta_min == 0 && t <= std::uint64_t(cosine->T_max);
}

// The rate behind step n, from 1.
double next(const Schedule& s, double lr, double base_lr, std::uint64_t n) {
  if (const std::optional<double> ratio = s.ratio(n)) return lr * *ratio;
  if (const auto* cosine = s.target<CosineAnnealingLR>()) return cosine->next(lr, base_lr, n);
  return s.at(base_lr, n).lr;
}

// What moves a rate has no momentum, and may take t calls to say so (MultiplicativeLR).
std::optional<double> momentum_at(const Schedule& s, double base_lr, std::uint64_t t) {
  return moves(s) ? std::nullopt : s.at(base_lr, t).momentum;
}

// ---- how members begin

struct Start {
  double lr = 0;                     // behind the making of all
  double initial_lr = 0;             // what Python's optimizer then has as its first rate
  std::vector<double> base_lr = {};  // of each member
};

Start start_of(const Schedules& members, double base_lr) {
  Start start{.lr = base_lr, .initial_lr = base_lr};
  for (const Schedule& s : members) {
    const auto* cyclic = s.target<CyclicLR>();
    const auto* one_cycle = s.target<OneCycleLR>();
    if (cyclic != nullptr && start.base_lr.empty()) start.initial_lr = cyclic->base_lr;
    if (one_cycle != nullptr) start.initial_lr = one_cycle->max_lr / one_cycle->div_factor;
    if (cyclic != nullptr)
      start.lr = start.initial_lr;
    else if (s.ratio(1))
      start.lr *= s.at(1, 0).lr;
    else if (!moves(s))
      start.lr = s.at(start.initial_lr, 0).lr;
    start.base_lr.push_back(start.initial_lr);
  }
  return start;
}

// ---- checks

void check_members(const char* name, const Schedules& members) {
  require_option(!members.empty(), name, "schedulers", "empty", "at least one schedule");
  int momenta = 0, one_cycles = 0;
  for (const Schedule& s : members) {
    require_option(s.target<SequentialLR>() == nullptr, name, "a member", "a SequentialLR", "a schedule by itself");
    require_option(s.target<ChainedScheduler>() == nullptr, name, "a member", "a ChainedScheduler",
                   "a schedule by itself");
    require_option(s.target<ReduceLROnPlateau>() == nullptr, name, "a member", "a ReduceLROnPlateau",
                   "a function of the step");
    one_cycles += s.target<OneCycleLR>() != nullptr;
    momenta += s.target<OneCycleLR>() != nullptr || s.target<CyclicLR>() != nullptr;
  }
  require_option(one_cycles == 0 || momenta == 1, name, "a member", "a OneCycleLR",
                 "the only CyclicLR or OneCycleLR of the list");
}

}  // namespace

// ---- one after the other

namespace {

// Where member i of a SequentialLR begins.
std::uint64_t begin_of(const SequentialLR& s, std::size_t i) { return i == 0 ? 0 : std::uint64_t(s.milestones[i - 1]); }

// The first member begins from what all have made of the first rate, which is not its base when a OneCycleLR comes
// later.
double first_rate(const Schedule& s, const Start& start, std::uint64_t t) {
  if (start.initial_lr == start.base_lr[0] || !moves(s)) return s.at(start.base_lr[0], t).lr;
  if (multiplies(s, t)) return s.at(start.initial_lr, t).lr;
  double lr = start.initial_lr;
  for (std::uint64_t n = 1; n <= t; ++n) lr = next(s, lr, start.base_lr[0], n);
  return lr;
}

double rate_of(const SequentialLR& s, const Start& start, std::size_t i, std::uint64_t t) {
  const Schedule& member = s.schedulers[i];
  const std::uint64_t since = t - begin_of(s, i);
  if (i == 0) return first_rate(member, start, t);
  const auto* goes_on = member.target<MultiplicativeLR>();
  if (goes_on == nullptr) return member.at(start.base_lr[i], since).lr;
  const double found = rate_of(s, start, i - 1, begin_of(s, i) - 1);
  return goes_on->at(found * goes_on->ratio(0), since).lr;
}

// Of the member whose time it is, or else the last that an earlier one has set, or else the first of the last to be
// made.
std::optional<double> momentum_of(const SequentialLR& s, const Start& start, std::size_t i, std::uint64_t t) {
  for (std::size_t k = i + 1; k-- > 0; t = begin_of(s, k) - 1)
    if (const auto momentum = momentum_at(s.schedulers[k], start.base_lr[k], t - begin_of(s, k))) return momentum;
  for (std::size_t k = s.schedulers.size(); k-- > i + 1;)
    if (const auto momentum = momentum_at(s.schedulers[k], start.base_lr[k], 0)) return momentum;
  return {};
}

}  // namespace

void check(const SequentialLR& schedule) {
  const char* const name = "SequentialLR";
  check_members(name, schedule.schedulers);
  const auto wanted = std::int64_t(schedule.schedulers.size()) - 1, found = std::int64_t(schedule.milestones.size());
  require_option(found == wanted, name, "the number of milestones", found, "one less than there are schedulers");
  std::int64_t before = 0;
  for (const std::int64_t milestone : schedule.milestones) {
    require_option(milestone > before, name, "a milestone", milestone, "above 0 and those before it");
    before = milestone;
  }
}

Rate SequentialLR::at(double base_lr, std::uint64_t t) const {
  check(*this);
  const Start start = start_of(schedulers, base_lr);
  const auto later = std::upper_bound(milestones.begin(), milestones.end(), t,
                                      [](std::uint64_t now, std::int64_t m) { return now < std::uint64_t(m); });
  const auto i = std::size_t(later - milestones.begin());
  return {.lr = rate_of(*this, start, i, t), .momentum = momentum_of(*this, start, i, t)};
}

// ---- all at once

void check(const ChainedScheduler& schedule) { check_members("ChainedScheduler", schedule.schedulers); }

Rate ChainedScheduler::at(double base_lr, std::uint64_t t) const {
  check(*this);
  const Start start = start_of(schedulers, base_lr);
  Rate rate{.lr = base_lr};
  for (std::size_t i = 0; i < schedulers.size(); ++i)
    if (const auto momentum = momentum_at(schedulers[i], start.base_lr[i], t)) rate.momentum = momentum;
  if (std::all_of(schedulers.begin(), schedulers.end(), [t](const Schedule& s) { return multiplies(s, t); })) {
    for (const Schedule& s : schedulers) rate.lr *= s.at(1, t).lr;
    return rate;
  }
  rate.lr = start.lr;
  const bool set_anew = !std::all_of(schedulers.begin(), schedulers.end(), moves);
  for (std::uint64_t n = set_anew ? std::max<std::uint64_t>(t, 1) : 1; n <= t; ++n)
    for (std::size_t i = 0; i < schedulers.size(); ++i) rate.lr = next(schedulers[i], rate.lr, start.base_lr[i], n);
  return rate;
}

}  // namespace lockstep::optim
