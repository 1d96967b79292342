#pragma once

// The data-parallel engine: one module, one group, and what happens to gradients.
//
// From its construction, all ranks have rank 0's parameters and buffers, and gradients are
// averaged in buckets (gradient_buckets.h). Once one of our optimizers attaches, parameters
// and optimizer state move into the node's segment (state/shared_state.h), gradients into
// slots there, and a step becomes a transaction. docs/design/step.md walks through one.
//
// Used by one thread at a time. Collective, on all ranks in the same order: construction,
// attach, apply, modify.

#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "lockstep/amp/autocast.h"
#include "lockstep/comm/group.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/store_choice.h"
#include "lockstep/optim/update.h"
#include "lockstep/parallel/gradient_buckets.h"
#include "lockstep/parallel/memory_format.h"
#include "lockstep/parallel/module_view.h"
#include "lockstep/parallel/options.h"
#include "lockstep/parallel/shards.h"
#include "lockstep/state/layout.h"

namespace lockstep::parallel {

struct FusedState;

class Engine : public optim::Target {
 public:
  /// UsageError when the module cannot be shared (see named_tensors.h), when there are fewer
  /// shards than ranks; Error naming the rank and the tensor when ranks hold different modules.
  Engine(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<comm::Group> group, DataParallelOptions options);
  ~Engine() override;

  comm::Group& group() const { return *group_; }
  torch::nn::Module& module() const { return *module_; }
  const DataParallelOptions& options() const { return options_; }
  int shards() const { return options_.shards; }
  /// The shards that this rank computes.
  ShardSpan local_shards() const { return shards_of(group_->rank(), group_->size(), options_.shards); }

  /// Starts the next pass of shard `shard` in the next step: generator reseeded, module buffers as committed or as this
  /// shard's last pass left them; gradients of backward passes go into this shard's slot until the next begin_shard()
  /// or step. Needed only with several shards per rank, where Shards calls it.
  /// Error naming what was edited outside modify(): a parameter's memory, a module buffer.
  void begin_shard(int shard);
  /// Called before each forward: in training mode and with gradients, each is a pass of the only shard of a rank,
  /// unless begin_shard() started one in this step.
  void begin_forward();
  /// Adds a mean loss over `samples` samples, of the active pass, to the step's record.
  void record(double loss, std::int64_t samples);

  /// Steps committed so far.
  std::uint64_t steps() const;
  /// The record of the last committed step.
  state::StepRecord last_record() const;

  /// Runs fn() on rank 0, there with writable float32 parameters and without autograd; the edited
  /// parameters, frozen ones included, and buffers become everybody's in one commit, also where fn() gave them other
  /// memory (set_data(), torch::load). Collective; between steps.
  void modify(const std::function<void()>& fn);

  /// All parameters and buffers by their PyTorch names, as load_state_dict in Python wants them: float32
  /// weights whatever forward reads. They share the model's memory and hold until the next step.
  std::map<std::string, at::Tensor> state_dict() const;

  /// state::tensors_hash() over state_dict().
  std::string weights_hash() const;

  /// XXH3-128 over the committed buffer: weights, optimizer state, module buffers and record.
  /// Equal states, equal hashes, on any rank. Needs an attached optimizer.
  std::string state_hash() const;

  /// The page size behind the shared state (base::page_size). Needs an attached optimizer.
  std::string page_size() const;

  /// How this rank's slice was written in the last step, which is found out by trying (optim/store_choice.h) and
  /// changes no bit. Nothing when this process has made no step.
  std::optional<optim::Stores> stores() const { return stores_; }

  /// While the returned object lives, gradients stay local and add up in .grad(), as with
  /// PyTorch's no_sync. For optimizers that are not ours only: ours add up until step().
  std::shared_ptr<void> no_sync();

  // optim::Target
  void attach(int arrays) override;
  std::uint64_t next_step() const override { return steps() + 1; }
  void apply(const optim::Rule& rule, const optim::StepOptions& options) override;
  void discard_gradients() override;

 private:
  friend class ForwardScope;

  void require_optimizer(const char* what) const;
  void open_pass(int shard);
  void on_gradient(std::size_t parameter);
  void begin_classic_forward();
  void refuse_set_gradients() const;
  void check_gradients() const;
  double gather(const optim::StepOptions& options);
  double gradient_norm();
  [[noreturn]] void refuse_norm(double norm);
  std::string first_nonfinite() const;
  void update(const optim::Rule& rule, const optim::StepOptions& options, double norm);
  /// What a step reads and writes in a part of the flat range, which begins at element 0 of the arrays.
  optim::Arrays arrays_of(const state::Part& part) const;
  void update_slice(const optim::Rule& rule, float gradient_scale);
  void write_record(std::uint64_t step, double gradient_norm);
  template <class F>
  void or_abort(F&& body);

  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<comm::Group> group_;
  DataParallelOptions options_;
  ModuleView view_;
  std::unique_ptr<GradientBuckets> buckets_;  ///< until attach()
  std::unique_ptr<FusedState> fused_;         ///< from attach() on
  bool loops_ = false;                        ///< begin_shard() was called in this step
  optim::StoreChoice store_choice_;
  std::optional<optim::Stores> stores_;
};

/// What holds around a forward pass: autocast, the format of gradients.
class ForwardScope {
 public:
  explicit ForwardScope(const Engine& engine);

 private:
  amp::Autocast autocast_;
  ChannelsLastScope format_;
};

}  // namespace lockstep::parallel
