#pragma once

// The optimizers as a user sees them. Names, defaults and meaning of the options are those
// of Python's torch.optim.
//
//   lockstep::optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
//   ...
//   loss.backward();
//   optimizer.step();
//
// With options of their own for some parameters, by tensors or by names:
//
//   lockstep::optim::SGD optimizer(ddp, {{model->head->parameters(), {.lr = 1e-2}}, {"*"}}, {.lr = 1e-3, .momentum =
//   0.9});
//
// The optimizer holds no tensors: its state lives in the node's segment, beside the weights.

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/optim/param_groups.h"
#include "lockstep/optim/rule.h"
#include "lockstep/optim/schedules/schedule.h"

namespace lockstep::optim {

/// Of a loss that was multiplied by `scale` before backward (amp/grad_scaler.h).
struct LossScale {
  double scale = 1;
  /// Called on every rank between the reduction and the commit, with the first parameter whose mean gradient is not
  /// finite; empty: all are. What it writes into memory that is kept (EngineState::keep) is committed with the step.
  std::function<void(const std::string& overflowed)> decided = [](const std::string&) {};
};

/// What a single step may be told.
struct StepOptions {
  /// Clips the mean gradients so that their norm over all parameters is at most this, as
  /// torch.nn.utils.clip_grad_norm_ does; costs one more pass over the gradients. 0: no clipping. A norm that is
  /// not a number makes all weights so, an infinite one those with infinite gradients (those of the others count as 0).
  /// Lion's weights stay where they are instead: the sign of what is no number is 0.
  double max_norm = 0;
  /// Which norm: p of the p-norm, more than 0; infinity for the largest magnitude. The record has it. For other p than
  /// 1, 2 and infinity its last bits are those of the C library's pow() on this processor.
  double norm_type = 2;
  /// Cuts each mean gradient to [-max_value, max_value], as torch.nn.utils.clip_grad_value_ does, after clipping to
  /// max_norm. 0: no clipping.
  double max_value = 0;
  /// A norm that is not finite is an Error on all ranks, before anything is written, which names the step and the
  /// first parameter. The group can be used on: the gradients are still there, zero_grad() drops them. Costs
  /// the same pass; needs no max_norm.
  bool error_if_nonfinite = false;
  /// What the gradients of the whole job are divided by, where they are those of sums and not of means over a shard:
  /// samples or tokens, this rank's. Those of all ranks are added; a rank, or a shard, may have more than another, or
  /// none. The bits do not depend on the number of ranks while the sum is exact, as sums of whole numbers are. All
  /// ranks give one or none does: else, and when they add up to 0, an Error on all ranks, before anything is written.
  std::optional<double> denominator = {};
  /// Divides the mean gradients, before everything else, and makes a step with one that is not finite leave weights,
  /// optimizer state and counts of updates as they are; it is committed all the same, so that the job goes on behind
  /// it. Costs one more pass over the gradients, the same as that of max_norm.
  std::optional<LossScale> loss_scale = {};
};

/// UsageError naming the value when one is out of its range.
void check(const StepOptions& options);

/// What an optimizer needs of its target.
struct Needs {
  std::string kind = {};  ///< equal where one's state can be another's: which optimizer, what its arrays are
  int arrays = 0;         ///< of optimizer state, each of the size of the weights, zero at the start
  bool norms = false;     ///< whether its rules need norms over each parameter (rule.h)
  int groups = 1;         ///< of parameters, each with rules of its own
  std::vector<int>
      group_of;  ///< of each of Target::parameters(), from 0; empty: all are in group 0. The same on all ranks.
};

/// For which weights a rule is asked.
struct RuleKey {
  int group = 0;
  std::uint64_t step = 0;  ///< the updates that these weights will have had with this one, counted from 1
  bool operator==(const RuleKey&) const = default;
};

/// Those of a step.
class Rules {
 public:
  /// `options`: a hash of what they are made of, which the ranks compare before anything is updated.
  template <std::invocable<const RuleKey&> F>
  requires(!std::same_as<F, Rules>) Rules(F rule_of, std::uint64_t options = 0)  // NOLINT: meant to convert
      : rule_of_(std::move(rule_of)), options_(options) {}
  Rule operator()(const RuleKey& key) const { return rule_of_(key); }
  std::uint64_t options() const { return options_; }

 private:
  std::function<Rule(const RuleKey& key)> rule_of_;
  std::uint64_t options_;
};

/// What an optimizer steps: the data-parallel engine.
class Target {
 public:
  virtual ~Target() = default;
  /// Those that are trained, in a fixed order.
  virtual std::vector<Parameter> parameters() const = 0;
  /// Makes the state that the optimizer needs. Collective. Once per target.
  virtual void attach(const Needs& needs) = 0;
  /// The step that the next call of apply() makes, counted from 1.
  virtual std::uint64_t next_step() const = 0;
  /// One step: reduce, update by the rules, commit. Collective. Each rank asks for the rules of the weights that it
  /// updates; the answers are the same on all ranks.
  virtual void apply(const Rules& rules, const StepOptions& options) = 0;
  /// Forgets the gradients gathered since the last step, and a backward pass that ended by an exception.
  virtual void discard_gradients() = 0;
};

/// What the loop sees of any optimizer.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One step of the whole group: waits for all gradients, reduces, updates, commits.
  /// Throws Error when a parameter got no gradient or a .grad was set by hand, GroupAborted
  /// when a peer failed; the weights are then still those of the last step.
  /// UsageError for options out of range; Error on all ranks, with nothing updated, for options that differ, those of
  /// groups among them.
  virtual void step(const StepOptions& options = {}) = 0;
  /// Forgets the gradients of backward passes since the last step. Not needed after step(). A forward pass before it
  /// counts: backward may follow.
  virtual void zero_grad() = 0;
  /// Sets the learning rate of the coming steps, of all groups; the same on all ranks. UsageError when it is out of
  /// range; the old one stays.
  virtual void set_lr(double lr) = 0;
  /// That of the first group.
  virtual double lr() const = 0;
  /// Sets the rate of each group to what `schedule` says after t steps (or epochs) for the rate that the group was made
  /// with, and its momentum (SGD's, RMSprop's, the first of the betas) if the schedule has one. UsageError when
  /// something is out of range, or when the optimizer has no momentum; then nothing is set.
  virtual void set_lr(const Schedule& schedule, std::uint64_t t) = 0;
  /// The same with a schedule for each group, in their order. UsageError for another number of them.
  virtual void set_lr(std::span<const Schedule> of_groups, std::uint64_t t) = 0;
};

template <class Options>
class FusedOptimizer : public Optimizer {
 public:
  /// Attaches to the engine (collective), all parameters in one group. UsageError for options out of range, and for a
  /// process group without a node.
  explicit FusedOptimizer(Target& target, const Options& options = {})
      : FusedOptimizer(target, everything(), options) {}

  /// The same with parameter groups. A group's options that are not given are those of `defaults`. A parameter belongs
  /// to the first group that has it. UsageError naming the parameter that is in no group, and the name or tensor of a
  /// group that is none of the parameters.
  FusedOptimizer(Target& target, std::initializer_list<ParamGroup<Options>> groups, const Options& defaults = {})
      : FusedOptimizer(target, groups.size() == 0 ? everything() : std::vector(groups), defaults) {}  // {}: no options
  template <std::same_as<ParamGroup<Options>> Group>  // a template, so that braces are never taken for a vector
  FusedOptimizer(Target& target, std::vector<Group> groups, const Options& defaults = {})
      : target_(target), groups_(std::move(groups)) {
    std::vector<Params> params;
    for (ParamGroup<Options>& group : groups_) {
      group.options = inherit(group.options, defaults);
      group.initial_lr = group.options.lr;
      params.push_back(group.params);
    }
    check_options();
    Needs needs{.groups = int(groups_.size()), .group_of = groups_of(target_.parameters(), params)};
    needs.norms = NeedsNorms<decltype(rule_for(groups_.front().options, 1))>;
    needs.kind = std::to_string(Rule(rule_for(groups_.front().options, 1)).index());
    for (const ParamGroup<Options>& group : groups_) {
      needs.arrays = std::max(needs.arrays, rule_for(group.options, 1).arrays());
      layouts_.push_back(layout_of(group.options));
      needs.kind += " " + std::to_string(layouts_.back());
    }
    target_.attach(needs);
  }

  void step(const StepOptions& options = {}) override {
    check(options);
    check_options();
    const auto rule_of = [this](const RuleKey& key) {
      return Rule(rule_for(groups_[std::size_t(key.group)].options, key.step));
    };
    std::uint64_t hash = 0;
    for (const ParamGroup<Options>& group : groups_) hash = hash_of(group.options, hash);
    target_.apply({rule_of, hash}, options);
  }
  void zero_grad() override { target_.discard_gradients(); }

  /// The groups, whose options may be set between steps, the same on all ranks; those that make an optimizer need
  /// another amount of state (SGD's momentum from or to 0, amsgrad) may not. They are looked at by step(), which throws
  /// UsageError and does nothing when one is out of range. They are no state: after a restart the program sets them
  /// again, as a function of the step (schedules/schedule.h). Which parameters are in a group, and how many groups
  /// there are, is settled; references to groups hold as long as the optimizer.
  std::span<ParamGroup<Options>> param_groups() { return groups_; }
  std::span<const ParamGroup<Options>> param_groups() const { return groups_; }

  void set_lr(double lr) override {
    for (ParamGroup<Options>& group : groups_) {
      Options changed = group.options;
      changed.lr = lr;
      optim::check(changed);
    }
    for (ParamGroup<Options>& group : groups_) group.options.lr = lr;
  }
  double lr() const override { return groups_.front().options.lr; }
  void set_lr(const Schedule& schedule, std::uint64_t t) override {
    set_rates([&](std::size_t) -> const Schedule& { return schedule; }, t);
  }
  void set_lr(std::span<const Schedule> of_groups, std::uint64_t t) override {
    if (of_groups.size() != groups_.size()) refuse_schedules(of_groups.size(), groups_.size());
    set_rates([&](std::size_t group) -> const Schedule& { return of_groups[group]; }, t);
  }

 private:
  static std::vector<ParamGroup<Options>> everything() { return {{"*"}}; }

  void set_rates(const auto& schedule_of, std::uint64_t t) {
    std::vector<Options> changed;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const Rate rate = schedule_of(i).at(groups_[i].initial_lr, t);
      Options& options = changed.emplace_back(groups_[i].options);
      options.lr = rate.lr;
      if (rate.momentum) set_momentum(options, *rate.momentum);
      optim::check(options);
      if (layout_of(options) != layouts_[i]) refuse_momentum();
    }
    for (std::size_t i = 0; i < groups_.size(); ++i) groups_[i].options = changed[i];
  }

  static void set_momentum(Options& options, double momentum) {
    if constexpr (requires { options.momentum; })
      options.momentum = momentum;
    else if constexpr (requires { options.betas; })
      options.betas = Betas{momentum, (*options.betas)[1]};
    else
      refuse_momentum();
  }

  /// What the arrays of state are.
  static int layout_of(const Options& options) {
    const auto rule = rule_for(options, 1);
    if constexpr (requires { rule.layout(); })
      return rule.layout();
    else
      return rule.arrays();
  }

  void check_options() const {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      optim::check(groups_[i].options);
      if (!layouts_.empty() && layout_of(groups_[i].options) != layouts_[i]) refuse_other_state(int(i));
    }
  }

  Target& target_;
  std::vector<ParamGroup<Options>> groups_;
  std::vector<int> layouts_;  ///< of each group's state
};

}  // namespace lockstep::optim
