#pragma once

// The optimizers as a user sees them. Names, defaults and meaning of the options are those
// of Python's torch.optim.
//
//   lockstep::optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
//   ...
//   loss.backward();
//   optimizer.step();
//
// The optimizer holds no tensors: its state lives in the node's segment, beside the weights.

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/optim/rule.h"

namespace lockstep::optim {

/// What a single step may be told.
struct StepOptions {
  /// Clips the mean gradients so that their 2-norm over all parameters is at most this, as
  /// torch.nn.utils.clip_grad_norm_ does; costs one more pass over the gradients. 0: no clipping. A norm that is
  /// not a number makes all weights so, an infinite one those with infinite gradients (those of the others count as 0).
  double max_norm = 0;
  /// A norm that is not finite is an Error on all ranks, before anything is written, which names the step and the
  /// first parameter. The group can be used on: the gradients are still there, zero_grad() drops them. Costs
  /// the same pass; needs no max_norm.
  bool error_if_nonfinite = false;
};

/// What an optimizer needs of its target.
struct Needs {
  int arrays = 0;  ///< of optimizer state, each of the size of the weights, zero at the start
  int groups = 1;  ///< of parameters, each with rules of its own
  /// The group of the parameter with this name, from 0; empty: all are in group 0. The same on all ranks.
  std::function<int(const std::string& name)> group_of;
};

/// For which weights a rule is asked.
struct RuleKey {
  int group = 0;
  std::uint64_t step = 0;  ///< the updates that these weights will have had with this one, counted from 1
};
using Rules = std::function<Rule(const RuleKey& key)>;

/// What an optimizer steps: the data-parallel engine.
class Target {
 public:
  virtual ~Target() = default;
  /// Makes the state that the optimizer needs. Collective. Once per target.
  virtual void attach(const Needs& needs) = 0;
  /// The step that the next call of apply() makes, counted from 1.
  virtual std::uint64_t next_step() const = 0;
  /// One step: reduce, update by the rules, commit. Collective. Each rank asks for the rule of each part of the weights
  /// that it updates, once; the answers are the same on all ranks.
  virtual void apply(const Rules& rules, const StepOptions& options) = 0;
  /// Forgets the gradients gathered since the last step, and a backward pass that ended by an exception.
  virtual void discard_gradients() = 0;
};

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  ///< needs momentum > 0 and dampening 0
};

struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};  ///< of the means of gradients and of their squares
  double eps = 1e-8;
  double weight_decay = 0;
};

struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};  ///< of the means of gradients and of their squares
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

/// UsageError naming the value when one is out of its range.
void check(const SGDOptions& options);
void check(const AdamOptions& options);
void check(const AdamWOptions& options);
void check(const StepOptions& options);

/// The rule of step `step` (from 1).
SGDRule rule_for(const SGDOptions& options, std::uint64_t step);
AdamRule rule_for(const AdamOptions& options, std::uint64_t step);
AdamRule rule_for(const AdamWOptions& options, std::uint64_t step);

/// Arrays of state that the options need.
int state_arrays(const SGDOptions& options);
int state_arrays(const AdamOptions& options);
int state_arrays(const AdamWOptions& options);

/// What the loop sees of any optimizer.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One step of the whole group: waits for all gradients, reduces, updates, commits.
  /// Throws Error when a parameter got no gradient or a .grad was set by hand, GroupAborted
  /// when a peer failed; the weights are then still those of the last step.
  /// UsageError for options out of range.
  virtual void step(const StepOptions& options = {}) = 0;
  /// Forgets the gradients of backward passes since the last step. Not needed after step(). A forward pass before it
  /// counts: backward may follow.
  virtual void zero_grad() = 0;
  /// Sets the learning rate of the coming steps; the same on all ranks.
  virtual void set_lr(double lr) = 0;
  virtual double lr() const = 0;
};

template <class Options>
class FusedOptimizer final : public Optimizer {
 public:
  /// Attaches to the engine (collective). UsageError for options out of range, and for a group without a node.
  explicit FusedOptimizer(Target& target, Options options = {}) : target_(target), options_(options) {
    check(options_);
    target_.attach({.arrays = state_arrays(options_)});
  }
  void step(const StepOptions& options = {}) override {
    check(options);
    target_.apply([this](const RuleKey& key) { return Rule(rule_for(options_, key.step)); }, options);
  }
  void zero_grad() override { target_.discard_gradients(); }
  void set_lr(double lr) override {
    Options changed = options_;
    changed.lr = lr;
    check(changed);
    options_ = changed;
  }
  double lr() const override { return options_.lr; }

 private:
  Target& target_;
  Options options_;
};

using SGD = FusedOptimizer<SGDOptions>;
using Adam = FusedOptimizer<AdamOptions>;
using AdamW = FusedOptimizer<AdamWOptions>;

}  // namespace lockstep::optim
