#pragma once

// Uneven inputs of whatever has collectives of its own in the loop, as torch.distributed.algorithms.join: a rank
// without inputs takes part by a hook.
//
//   lockstep::ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(model->parameters(), world.group(), options);
//   lockstep::Join(ddp, {&optimizer}).run([&] {
//     for (auto& batch : loader) { ddp(batch.data).sum().backward(); optimizer.step(); }
//   });
//
// Ranks with inputs say what they are about to do; so hooks run in the order of the calls, each as often as there are
// calls, where Python runs all hooks once for each forward.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/options.h"

namespace lockstep::parallel {

class Engine;

/// What a rank without inputs does for a Joinable.
class JoinHook {
 public:
  virtual ~JoinHook() = default;
  /// Takes part in what the others do behind notify_join_context(): the same collectives. `source`: the rank whose
  /// state counts, which has inputs.
  virtual void main_hook([[maybe_unused]] int source) {}
  /// Collective, when no rank has inputs left, on all. `is_last_joiner`: on one rank, of those that ended last.
  virtual void post_hook([[maybe_unused]] bool is_last_joiner) {}
};

/// Has collectives of its own, each behind notify_join_context().
class Joinable {
 public:
  virtual ~Joinable() = default;
  /// Of a join() that begins on this rank.
  virtual std::shared_ptr<JoinHook> join_hook(const JoinOptions& options) = 0;
  /// Its collectives' group.
  virtual comm::Group& join_process_group() const = 0;
};

/// Within a join() that has `joinable` among its joinables: tells the ranks without inputs, who run its main_hook(),
/// and returns the rank whose state counts, the same on all. Collective. Outside of one it does nothing. UsageError
/// within a join() on the same group that does not have it; Error on all ranks as
/// JoinOptions::throw_on_early_termination has it.
std::optional<int> notify_join_context(const Joinable& joinable);

/// All ranks have the same joinables, in the same order. They and the engine must outlive this.
class Join {
 public:
  /// As ddp.join() with these joinables.
  Join(Engine& ddp, std::vector<Joinable*> joinables, JoinOptions options = {});
  /// Without a DistributedDataParallel. UsageError where they have different groups, or there is none.
  explicit Join(std::vector<Joinable*> joinables, JoinOptions options = {});

  /// Runs loop(), then takes part in what the others do until all are done. What loop() throws ends the job.
  void run(const std::function<void()>& loop);

 private:
  Engine* ddp_ = nullptr;
  JoinOptions options_;
};

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::Join;
using parallel::Joinable;
using parallel::JoinHook;
using parallel::notify_join_context;
}  // namespace lockstep
