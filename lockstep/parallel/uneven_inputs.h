#pragma once

// Ranks that have more inputs than others (Engine::join): what each is about to do, so that those without inputs take
// part.

#include <functional>
#include <memory>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/options.h"

namespace lockstep::parallel {

class UnevenInputs {
 public:
  /// What a rank is about to do; `none`: it has no more inputs.
  enum class Pass { none, forward, backward, step };

  UnevenInputs(std::shared_ptr<comm::Group> group, const JoinOptions& options)
      : group_(std::move(group)), options_(options), ranks_left_(group_->size()) {}

  /// Runs the loop of this rank. What it throws ends the job, unless that is the end of the loop of all.
  void run(const std::function<void()>& loop);

  /// Collective: tells the others, and returns what those with inputs do, `none` when there are none left. Error naming
  /// the ranks where some begin a forward and some a backward, and on all ranks where one has no more inputs and
  /// throw_on_early_termination is set.
  Pass announce(Pass mine);

  /// The last rank that had inputs at the last announcement with any: whose module buffers and weights count.
  int source() const { return source_; }
  /// Whether all ranks have inputs, as of the last announcement.
  bool complete() const { return ranks_left_ == group_->size(); }
  /// As given to the constructor.
  const JoinOptions& options() const { return options_; }
  /// What a mean over all ranks is multiplied by.
  double correction() const;

 private:
  std::shared_ptr<comm::Group> group_;
  JoinOptions options_;
  int ranks_left_;
  int source_ = 0;
  bool ended_ = false;  ///< by throw_on_early_termination
};

}  // namespace lockstep::parallel
