#pragma once

// The data-parallel engine: one module, one group, and what happens to gradients.
//
// From its construction, all ranks have rank 0's parameters and buffers, and gradients are
// averaged in buckets (classic_path.h). Once one of our optimizers attaches, parameters
// and optimizer state move into the node's segment (state/shared_state.h), gradients into
// slots there, and a step becomes a transaction. docs/design/step.md walks through one.
//
// Used by one thread at a time. Collective, on all ranks in the same order: construction,
// attach, apply, modify, state().recommit, begin_evaluation.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/hooks/grad_bucket.h"
#include "lockstep/parallel/logging_data.h"
#include "lockstep/parallel/options.h"
#include "lockstep/parallel/shards.h"
#include "lockstep/state/step_record.h"

namespace torch::nn {
class Module;  // its header takes ten seconds to compile
}

namespace lockstep::state {
class SharedState;  // of users, only checkpoints want it
}

namespace lockstep::parallel {

struct EngineParts;
struct FusedState;
class Engine;

/// From now on a step of these models is one transaction: committed when each of them has made it. Whoever dies in
/// between leaves all of them at the step before. Until the last has made its step, the others show the weights of
/// theirs, and make no further one. All ranks, in the same order, between steps, behind their optimizers, after each
/// start and before what it goes on from is asked for: over several nodes, and on the one that is left of them, models
/// may go back to the step of the oldest here. UsageError when they are no two models of one group with optimizers of
/// ours, at different steps, or with zero1.
void commit_together(std::span<Engine* const> models);
template <class... Models>
void commit_together(Models&... models) {
  Engine* const all[] = {&models...};
  commit_together(std::span<Engine* const>(all));
}

/// What a program seldom needs of the shared state. Valid as long as the engine.
class EngineState {
 public:
  explicit EngineState(EngineParts& parts) : parts_(parts) {}

  /// Makes `memory` a part of the state: what counts when training goes on and is not the engine's, as the best metric
  /// so far or a sampler's position. Before an optimizer attaches, on all ranks with the same names and sizes in the
  /// same order. From then on rank 0's bytes are committed with each step and by modify(); the owner writes them
  /// between steps. When the optimizer attaches, `memory` becomes what is committed, on every rank: rank 0's bytes at a
  /// first start, those of the last committed step after a restart.
  ///
  /// `memory` must stay where it is for as long as the engine. The bytes are told neither their type nor their order:
  /// they are for the same program on the same machine.
  /// UsageError once an optimizer is attached, and when name or memory is empty or the name taken.
  void keep(std::string name, std::span<std::byte> memory) const;

  /// The same of a number, or a struct of numbers.
  template <class T>
  requires(std::is_trivially_copyable_v<T> && !std::is_const_v<T>) void keep(std::string name, T& value) const {
    keep(std::move(name), std::as_writable_bytes(std::span(&value, 1)));
  }

  /// The memory that is kept, by its names.
  std::map<std::string, std::span<std::byte>> kept() const;

  /// Commits what is kept, as rank 0 has it now, for the step that is committed already: for what is decided after a
  /// step, by an evaluation. modify() of nothing, so it copies the state once. Collective; between steps. Needs an
  /// attached optimizer.
  void recommit() const;

  /// Where nobody has left a state, it is not made of rank 0's module and kept bytes, but by restore(fresh) on that
  /// rank, when the optimizer attaches: it writes buffer 0 and frozen area 0, all of whose bytes are zero, but for the
  /// bfloat16 copies, and returns the step whose state that is (state::SharedState::Fill); with zero1 over several
  /// nodes the optimizer's state into fresh.whole_arrays(). A state that an earlier generation has left goes before.
  /// All ranks. UsageError once an optimizer is attached.
  void start_from(std::function<std::uint64_t(state::SharedState& fresh)> restore) const;

  /// Gives the state a third buffer, so that a committed one can be held while training goes on (state/pin.h): memory
  /// of one state more per node. Before an optimizer attaches, on all ranks. UsageError once one is attached.
  void make_holdable() const;

  /// The shared state; null as long as no optimizer of ours is attached.
  const state::SharedState* shared() const;

  /// XXH3-128 over all that is committed: weights, optimizer state, module buffers, record, kept bytes.
  /// Equal states, equal hashes, on any rank; with zero1 over several nodes, of what this node has of the optimizer's
  /// state, on any rank of it. Needs an attached optimizer.
  std::string hash() const;

 private:
  EngineParts& parts_;
};

/// The exponential moving average of the weights (DataParallelOptions::ema). Valid as long as the engine.
class EngineEma {
 public:
  explicit EngineEma(EngineParts& parts) : parts_(parts) {}

  /// As Engine::state_dict(), with averaged weights and module buffers, in memory that the next step leaves behind.
  /// Frozen parameters are their own average. UsageError without the option or an optimizer of ours.
  std::map<std::string, at::Tensor> state_dict() const;

  /// While the returned object lives, the module's parameters and buffers are the averaged ones on this rank, to be
  /// evaluated: no forward in training mode, step or edit. It must not outlive the engine. UsageError as above, and
  /// when there is such an object already.
  [[nodiscard("the module shows averaged weights only while the returned object lives")]] std::shared_ptr<void> use()
      const;

 private:
  FusedState& averaged(const char* what) const;

  EngineParts& parts_;
};

/// What tells how the engine works; it changes no bit. Valid as long as the engine.
class EngineDebug {
 public:
  explicit EngineDebug(const EngineParts& parts) : parts_(parts) {}

  /// The page size behind the shared state (base::page_size). Needs an attached optimizer.
  std::string page_size() const;

  /// How this rank's slice was written in the last step, "plain" or "streaming", which is found out by trying
  /// (optim/store_choice.h). Empty when this process has made no step.
  std::string stores() const;

  /// Where this rank's time goes, and in which order gradients come.
  LoggingData logging_data() const;

  /// "NAME: why" for each of DataParallelOptions that has nothing to do with the optimizer and hook there are.
  std::vector<std::string> ignored_options() const;

 private:
  const EngineParts& parts_;
};

class Engine : public optim::Target {  // facade: delegates to its parts
 public:
  /// UsageError when the module cannot be shared (see named_tensors.h), when there are fewer
  /// shards than ranks, or more and a SyncBatchNorm in the module, or an option is out of range; Error naming the rank
  /// and the tensor when ranks hold different modules.
  Engine(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<comm::Group> group, DataParallelOptions options);
  ~Engine() override;

  comm::Group& group() const;
  torch::nn::Module& module() const;
  /// Where the module is: its inputs have to be there, too.
  at::Device device() const;
  const DataParallelOptions& options() const;
  int shards() const { return options().shards; }
  /// The shards that this rank computes.
  ShardSpan local_shards() const;
  /// The same with whose they are: what a data::DataLoader asks for.
  Part part() const;

  /// Starts the next pass of shard `shard` in the next step: generator reseeded, module buffers as committed or as this
  /// shard's last pass left them; gradients of backward passes go into this shard's slot until the next begin_shard()
  /// or step. Needed only with several shards per rank, where Shards calls it.
  /// Error naming what was edited outside modify(): a parameter's memory, a module buffer. UsageError without an
  /// optimizer of ours, where there are more shards than ranks.
  void begin_shard(int shard);
  /// Called before each forward: in training mode and with gradients, each is a pass of the only shard of a rank,
  /// unless begin_shard() started one in this step. Without an optimizer of ours as PyTorch's: the first forward behind
  /// one that had gradients and was outside of no_sync(), in any mode, is collective.
  void begin_forward();
  /// Between steps, before all ranks evaluate: every rank has the same module buffers, rank 0's, unless
  /// broadcast_buffers is off. With an optimizer of ours they have them anyway. Collective; forwards of the evaluation
  /// are not, then, so that ranks may have unequal numbers of batches.
  void begin_evaluation();
  /// Called behind each forward. What lies between, and until the next one, is in debug().logging_data().
  void end_forward();

  /// From now on the file `path`, which is made anew, has what each rank does when (timeline.h), until
  /// stop_timeline(). One file per job, by the same path on all ranks. Collective, between steps. Error naming the
  /// file, or the rank that cannot write it, on all ranks.
  void start_timeline(const std::string& path);
  /// Collective. Without a timeline it does nothing.
  void stop_timeline();

  /// Adds a mean loss over `samples` samples, of the active pass, to the step's record.
  void record(double loss, std::int64_t samples);

  /// Steps committed so far.
  std::uint64_t steps() const;
  /// The record of the last committed step.
  state::StepRecord last_record() const;

  /// Whether any rank was asked to stop, by a signal that a StopOn of its process listens to, before it came to the
  /// last step: the same on all ranks, so that all end their loops there. With an optimizer of ours it costs nothing;
  /// without one it is collective.
  bool should_stop();

  /// Runs fn() on rank 0, there with writable float32 parameters and without autograd; the edited
  /// parameters, frozen ones included, and buffers become everybody's in one commit, also where fn() gave them other
  /// memory (set_data(), torch::load). Collective; between steps.
  void modify(const std::function<void()>& fn);

  /// All parameters and buffers by their PyTorch names, as load_state_dict in Python wants them: float32
  /// weights whatever forward reads. They share the model's memory and hold until the next step; with an optimizer of
  /// ours they are on the CPU, wherever the module is.
  std::map<std::string, at::Tensor> state_dict() const;

  /// state::tensors_hash() over state_dict().
  std::string weights_hash() const;

  EngineState state();
  EngineEma ema();
  EngineDebug debug() const;

  /// Gradients of forwards that begin while the returned object lives stay local and add up in .grad(), as with
  /// PyTorch's no_sync. For optimizers that are not ours only: ours add up until step().
  [[nodiscard("the gradients stay local only while the returned object lives")]] std::shared_ptr<void> no_sync();

  /// What happens to each bucket of gradients instead of their mean (hooks/grad_bucket.h). Collective, between steps,
  /// once. For optimizers that are not ours only: UsageError with one of ours, before or after.
  void register_comm_hook(CommHook hook, std::optional<HookMemory> memory = {});
  /// The same for a hook of a state, as PyTorch's are: hook(*state, bucket).
  template <class State, class Hook>
  void register_comm_hook(std::shared_ptr<State> state, Hook hook) {
    std::optional<HookMemory> memory = memory_of(state);
    register_comm_hook(CommHook([state = std::move(state), hook = std::move(hook)](GradBucket& bucket) -> GradFuture {
                         return hook(*state, bucket);
                       }),
                       std::move(memory));
  }
  /// What the registered hook remembers; null without a hook, and where it remembers nothing.
  const HookMemory* hook_memory() const;

  /// Runs loop(), training on inputs of which other ranks may have more or fewer: a rank whose loop is done takes part
  /// in what the others do with gradients of 0, until all are done. Then all have the weights and module buffers of a
  /// rank that ended last; the state of an optimizer of torch::optim is each rank's own. In loop() no collectives but
  /// those of forward, backward and step(), of a SyncBatchNorm over the same group, where a rank without inputs counts
  /// as one with an empty batch, and of JoinOptions::joinables; others are named at once. What loop() throws ends the
  /// job. With an optimizer of ours module buffers and what is kept stand still once rank 0 is done.
  ///
  /// UsageError with skip_all_reduce_unused_params, for what a rank without inputs would use is unknown, behind
  /// commit_together(), for it makes no steps of the other models, with a SyncBatchNorm over another group, and, unless
  /// throw_on_early_termination, with Amp::fp16 or a scaled loss without JoinOptions::scaler.
  void join(const std::function<void()>& loop, const JoinOptions& options = {});

  // optim::Target
  std::vector<optim::Parameter> parameters() const override;
  void attach(const optim::Needs& needs) override;
  std::uint64_t next_step() const override { return steps() + 1; }
  void apply(const optim::Rules& rules, const optim::StepOptions& options) override;
  void discard_gradients() override;

  friend void commit_together(std::span<Engine* const> models);

 private:
  std::unique_ptr<EngineParts> parts_;
};

}  // namespace lockstep::parallel
