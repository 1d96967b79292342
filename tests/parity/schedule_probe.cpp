// Lets the Python tests look at schedules: schedule_probe < request.json
//
// Request: a list of {"schedule": {"name", options...}, "base_lr", "steps"}, or for ReduceLROnPlateau "metrics" in
// place of "steps", null for one that is not a number. Options that are not there keep their defaults. A function is
// the list of its values at 0, 1, ...; CyclicLR's scale_fn is c of 1 / (1 + c·x). Answer: a line per case, a list of
// [lr, momentum or null] at t = 0, 1, ... (of ReduceLROnPlateau behind each metric), or {"error"}. With "optimizer",
// "SGD" (of momentum 0.9) or "Adam", the answer is the weights that it trains in so many steps under the schedule. With
// "groups", a list of two {"schedule", "base_lr"} in place of one, it is a list of [lr, momentum] of both at each t; a
// ReduceLROnPlateau looks at "metrics", of each step one.

#include <cstdint>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/optim.h"
#include "lockstep/optim/update.h"

namespace {

using nlohmann::json;
using namespace lockstep::optim;

template <class T>
void take(const json& from, const char* name, T& option) {
  if (from.contains(name)) option = from.at(name).get<T>();
}

template <class T>
void take(const json& from, const char* name, T& option, const std::map<std::string, T>& values) {
  if (from.contains(name)) option = values.at(from.at(name));
}

std::function<double(std::uint64_t)> table(const json& from) {
  return [values = from.at("lr_lambda").get<std::vector<double>>()](std::uint64_t t) { return values.at(t); };
}

Schedule constant(const json& j) {
  ConstantLR s;
  take(j, "factor", s.factor);
  take(j, "total_iters", s.total_iters);
  return s;
}

Schedule linear(const json& j) {
  LinearLR s;
  take(j, "start_factor", s.start_factor);
  take(j, "end_factor", s.end_factor);
  take(j, "total_iters", s.total_iters);
  return s;
}

Schedule step(const json& j) {
  StepLR s;
  take(j, "step_size", s.step_size);
  take(j, "gamma", s.gamma);
  return s;
}

Schedule multi_step(const json& j) {
  MultiStepLR s;
  take(j, "milestones", s.milestones);
  take(j, "gamma", s.gamma);
  return s;
}

Schedule polynomial(const json& j) {
  PolynomialLR s;
  take(j, "total_iters", s.total_iters);
  take(j, "power", s.power);
  return s;
}

Schedule cosine(const json& j) {
  CosineAnnealingLR s;
  take(j, "T_max", s.T_max);
  take(j, "eta_min", s.eta_min);
  return s;
}

Schedule warm_restarts(const json& j) {
  CosineAnnealingWarmRestarts s;
  take(j, "T_0", s.T_0);
  take(j, "T_mult", s.T_mult);
  take(j, "eta_min", s.eta_min);
  return s;
}

Schedule cyclic(const json& j) {
  CyclicLR s;
  take(j, "base_lr", s.base_lr);
  take(j, "max_lr", s.max_lr);
  take(j, "step_size_up", s.step_size_up);
  if (j.contains("step_size_down")) s.step_size_down = j.at("step_size_down").get<std::int64_t>();
  take(j, "mode", s.mode,
       {{"triangular", CyclicLR::Mode::triangular},
        {"triangular2", CyclicLR::Mode::triangular2},
        {"exp_range", CyclicLR::Mode::exp_range}});
  take(j, "gamma", s.gamma);
  if (j.contains("scale_fn")) s.scale_fn = [c = j.at("scale_fn").get<double>()](double x) { return 1 / (1 + c * x); };
  take(j, "scale_mode", s.scale_mode,
       {{"cycle", CyclicLR::ScaleMode::cycle}, {"iterations", CyclicLR::ScaleMode::iterations}});
  take(j, "cycle_momentum", s.cycle_momentum);
  take(j, "base_momentum", s.base_momentum);
  take(j, "max_momentum", s.max_momentum);
  return s;
}

Schedule one_cycle(const json& j) {
  OneCycleLR s;
  take(j, "max_lr", s.max_lr);
  take(j, "total_steps", s.total_steps);
  take(j, "epochs", s.epochs);
  take(j, "steps_per_epoch", s.steps_per_epoch);
  take(j, "pct_start", s.pct_start);
  take(j, "anneal_strategy", s.anneal_strategy,
       {{"cos", OneCycleLR::Anneal::cos}, {"linear", OneCycleLR::Anneal::linear}});
  take(j, "cycle_momentum", s.cycle_momentum);
  take(j, "base_momentum", s.base_momentum);
  take(j, "max_momentum", s.max_momentum);
  take(j, "div_factor", s.div_factor);
  take(j, "final_div_factor", s.final_div_factor);
  take(j, "three_phase", s.three_phase);
  return s;
}

ReduceLROnPlateau plateau(const json& j) {
  ReduceLROnPlateau s;
  take(j, "mode", s.mode, {{"min", ReduceLROnPlateau::Mode::min}, {"max", ReduceLROnPlateau::Mode::max}});
  take(j, "factor", s.factor);
  take(j, "patience", s.patience);
  take(j, "threshold", s.threshold);
  take(j, "threshold_mode", s.threshold_mode,
       {{"rel", ReduceLROnPlateau::ThresholdMode::rel}, {"abs", ReduceLROnPlateau::ThresholdMode::abs}});
  take(j, "cooldown", s.cooldown);
  take(j, "min_lr", s.min_lr);
  take(j, "eps", s.eps);
  return s;
}

Schedule schedule_of(const json& j);

std::vector<Schedule> members(const json& j) {
  std::vector<Schedule> all;
  for (const json& one : j.at("schedulers")) all.push_back(schedule_of(one));
  return all;
}

Schedule schedule_of(const json& j) {
  static const std::map<std::string, std::function<Schedule(const json&)>> kKinds = {
      {"ConstantLR", constant},
      {"LinearLR", linear},
      {"StepLR", step},
      {"MultiStepLR", multi_step},
      {"ExponentialLR", [](const json& e) { return Schedule(ExponentialLR{.gamma = e.value("gamma", kNotGiven)}); }},
      {"PolynomialLR", polynomial},
      {"LambdaLR", [](const json& l) { return Schedule(LambdaLR{.lr_lambda = table(l)}); }},
      {"MultiplicativeLR", [](const json& m) { return Schedule(MultiplicativeLR{.lr_lambda = table(m)}); }},
      {"CosineAnnealingLR", cosine},
      {"CosineAnnealingWarmRestarts", warm_restarts},
      {"CyclicLR", cyclic},
      {"OneCycleLR", one_cycle},
      {"SequentialLR",
       [](const json& s) {
         return Schedule(SequentialLR{members(s), s.at("milestones").get<std::vector<std::int64_t>>()});
       }},
      {"ChainedScheduler", [](const json& c) { return Schedule(ChainedScheduler{members(c)}); }}};
  return kKinds.at(j.at("name"))(j);
}

json as_json(const Rate& rate) { return json::array({rate.lr, rate.momentum ? json(*rate.momentum) : json(nullptr)}); }

double metric_of(const json& j) { return j.is_null() ? std::numeric_limits<double>::quiet_NaN() : j.get<double>(); }

json rates(const json& request) {
  json found = json::array();
  const double base_lr = request.at("base_lr");
  const json& options = request.at("schedule");
  if (options.at("name") == "ReduceLROnPlateau") {
    ReduceLROnPlateau s = plateau(options);
    for (const json& metric : request.at("metrics")) {
      s.step(metric_of(metric));
      found.push_back(as_json(s.at(base_lr)));
    }
    return found;
  }
  const Schedule schedule = schedule_of(options);
  const std::uint64_t steps = request.at("steps");
  for (std::uint64_t t = 0; t <= steps; ++t) found.push_back(as_json(schedule.at(base_lr, t)));
  return found;
}

// Weights from 0 on. The gradients are numbers that the test has, too, and no function of the weights: so the weights
// forget no step.
class Weights : public Target {
 public:
  std::vector<Parameter> parameters() const override { return {{"weights", this}}; }
  void attach(const Needs&) override {}
  std::uint64_t next_step() const override { return steps_ + 1; }
  void apply(const Rules& rules, const StepOptions&) override {
    for (std::uint64_t i = 0; i < kElements; ++i)
      gradient_[i] = float(std::int64_t((37 * steps_ + 101 * i) % 257) - 128) / 128;
    const void* const gradients[] = {gradient_};
    const Arrays arrays{.gradients = gradients,
                        .from_weights = weights_,
                        .from_state = {state_[0], state_[1]},
                        .to_weights = weights_,
                        .to_state = {state_[0], state_[1]}};
    update(rules({.step = ++steps_}), arrays, 0, kElements);
  }
  void discard_gradients() override {}

  json values() const { return weights_; }

 private:
  static constexpr std::size_t kElements = 64;
  alignas(64) float weights_[kElements] = {};
  alignas(64) float gradient_[kElements] = {};
  alignas(64) float state_[2][kElements] = {};
  std::uint64_t steps_ = 0;
};

// Two parameters that nothing trains.
struct Named : Target {
  std::vector<Parameter> parameters() const override { return {{"first", &steps}, {"second", this}}; }
  void attach(const Needs&) override {}
  std::uint64_t next_step() const override { return steps + 1; }
  void apply(const Rules&, const StepOptions&) override { ++steps; }
  void discard_gradients() override {}
  std::uint64_t steps = 0;
};

json group_rates(const json& request) {
  Named named;
  const json& groups = request.at("groups");
  const auto lr = [&](int group) { return groups[std::size_t(group)].at("base_lr").get<double>(); };
  SGD sgd(named, {{"first", {.lr = lr(0)}}, {"second", {.lr = lr(1)}}}, {.momentum = 0.9});
  std::vector<Schedule> schedules;
  std::map<std::size_t, ReduceLROnPlateau> plateaus;  // by group
  for (const json& group : groups) {
    const json& options = group.at("schedule");
    const bool looks = options.at("name") == "ReduceLROnPlateau";
    if (looks) plateaus[schedules.size()] = plateau(options);
    schedules.push_back(looks ? Schedule(plateau(options)) : schedule_of(options));
  }
  json found = json::array();
  for (std::uint64_t t = 0; t <= request.at("steps").get<std::uint64_t>(); ++t) {
    for (auto& [group, looking] : plateaus) {
      if (t > 0) looking.step(metric_of(request.at("metrics")[t - 1]));
      schedules[group] = looking;
    }
    sgd.set_lr(schedules, t);
    json both = json::array();
    for (const auto& group : sgd.param_groups()) both.push_back({*group.options.lr, *group.options.momentum});
    found.push_back(both);
  }
  return found;
}

json trained(const json& request) {
  Weights weights;
  const double base_lr = request.at("base_lr");
  std::unique_ptr<Optimizer> optimizer;
  if (request.at("optimizer") == "Adam")
    optimizer = std::make_unique<Adam>(weights, AdamOptions{.lr = base_lr});
  else
    optimizer = std::make_unique<SGD>(weights, SGDOptions{.lr = base_lr, .momentum = 0.9});
  const json& options = request.at("schedule");
  if (options.at("name") == "ReduceLROnPlateau") {
    ReduceLROnPlateau s = plateau(options);
    for (const json& metric : request.at("metrics")) {
      optimizer->set_lr(s.at(base_lr).lr);
      optimizer->step();
      s.step(metric_of(metric));
    }
    return weights.values();
  }
  const Schedule schedule = schedule_of(options);
  const std::uint64_t steps = request.at("steps");
  for (std::uint64_t t = 0; t < steps; ++t) {
    optimizer->set_lr(schedule, t);
    optimizer->step();
  }
  return weights.values();
}

json answer_to(const json& request) {
  if (request.contains("groups")) return group_rates(request);
  return request.contains("optimizer") ? trained(request) : rates(request);
}

}  // namespace

int main() {
  try {
    for (const json& request : json::parse(std::cin)) try {
        std::cout << answer_to(request).dump() << "\n";
      } catch (const lockstep::UsageError& error) {
        std::cout << json{{"error", error.what()}}.dump() << "\n";
      }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "schedule_probe: " << error.what() << "\n";
    return 2;
  }
}
