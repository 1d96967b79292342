#pragma once

// What a rank updates in a step, and by which rules: parameters of one part, group and number of updates together.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/optim/optimizer.h"
#include "lockstep/state/layout.h"

namespace lockstep::parallel {

/// What one rule updates; of one parameter only, where the optimizer asks for norms.
struct Piece {
  const state::Part* part;
  state::Slice range;     ///< from the part's first element
  std::size_t parameter;  ///< the first in it
  optim::Rule rule;
};

class UpdatePlan {
 public:
  /// Of the weights of `mine`. The layout must outlive this.
  UpdatePlan(const state::Layout& layout, state::Slice mine);

  /// Asks for the rules of the next step; `step_counts`: of each parameter, how often it was updated. What `rules`
  /// throws comes out.
  void choose(const optim::Rules& rules, const std::uint64_t* step_counts);

  /// Sets `pieces` to those of that step, in the order of their places; they cover `mine`. Parameters without `used`,
  /// by parameter, are kept as they are. Into the caller's vector, for a step allocates nothing.
  void fill(std::vector<Piece>& pieces, const std::vector<bool>& used) const;

 private:
  /// A parameter's share of `mine`, with the padding behind it.
  struct Stretch {
    std::size_t parameter;
    const state::Part* part;
    state::Slice range;
    std::size_t rule = 0;  ///< of rules_
  };

  const state::Layout& layout_;
  std::vector<Stretch> stretches_;
  std::vector<std::pair<optim::RuleKey, optim::Rule>> rules_;
};

}  // namespace lockstep::parallel
