#pragma once

// Ranks that have more inputs than others (Engine::join): what each is about to do, so that those without inputs take
// part.

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/join.h"
#include "lockstep/parallel/options.h"
#include "lockstep/parallel/step_clock.h"

namespace lockstep::parallel {

/// While it lives, it is found by its group.
class UnevenInputs {
 public:
  /// What a rank is about to do; `none`: it has no more inputs.
  enum class Pass {
    none,
    forward,
    backward,
    step,
    statistics,                  ///< of a SyncBatchNorm's batch; detail: its channels
    statistics_gradient,         ///< the same in its backward
    device_statistics,           ///< of one whose batches are on devices; detail: its DeviceNorm
    device_statistics_gradient,  ///< the same in its backward
    joinable                     ///< detail: which of JoinOptions::joinables
  };

  /// Waits are told to `clock`, where there is one; it must outlive this. `device`: the model's. UsageError for a
  /// joinable of another group.
  UnevenInputs(std::shared_ptr<comm::Group> group, const JoinOptions& options, StepClock* clock,
               at::Device device = at::kCPU);
  ~UnevenInputs();
  UnevenInputs(const UnevenInputs&) = delete;
  UnevenInputs& operator=(const UnevenInputs&) = delete;

  /// Of the join() that this rank is in with `group`; null: none. Any thread.
  static UnevenInputs* of(const comm::Group& group);

  /// Runs the loop of this rank. What it throws ends the job, unless that is the end of the loop of all.
  void run(const std::function<void()>& loop);

  /// Collective: tells the others. Error naming the ranks where some begin something else than others, and on all
  /// ranks where one has no more inputs and throw_on_early_termination is set.
  void announce(Pass mine, std::int64_t detail = 0) { (void)exchange(mine, detail); }
  /// What a rank without inputs is to take part in: forward, backward or step of the others; all else is done here.
  /// `none`: there are no inputs left.
  Pass follow();
  /// Collective, when there are none left.
  void end();

  /// The last rank that had inputs at the last announcement with any: whose module buffers and weights count.
  int source() const { return source_; }
  /// Whether all ranks have inputs, as of the last announcement.
  bool complete() const { return ranks_left_ == group_->size(); }
  /// Whether this rank has, as of the last announcement with any.
  bool has_inputs(int rank) const { return has_inputs_[std::size_t(rank)]; }
  /// As given to the constructor.
  const JoinOptions& options() const { return options_; }
  /// What a mean over all ranks is multiplied by.
  double correction() const;

 private:
  struct Told {
    Pass pass = Pass::none;
    std::int64_t detail = 0;
    bool operator==(const Told&) const = default;
  };
  Told exchange(Pass mine, std::int64_t detail);

  std::shared_ptr<comm::Group> group_;
  JoinOptions options_;
  StepClock* clock_;
  at::Device device_;
  std::vector<std::shared_ptr<JoinHook>> hooks_;  ///< of options_.joinables
  std::vector<bool> has_inputs_;                  ///< by rank
  int ranks_left_;
  int source_ = 0;
  bool ended_ = false;  ///< by throw_on_early_termination
};

}  // namespace lockstep::parallel
