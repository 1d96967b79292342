#pragma once

// Which parameters get gradients in a backward of the classic path, on this rank and on any; and whether that is so
// each time (DataParallelOptions::find_unused_parameters, static_graph).

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/named_tensors.h"
#include "lockstep/parallel/options.h"

namespace lockstep::parallel {

class GradientUse {
 public:
  GradientUse(const NamedTensors& parameters, const DataParallelOptions& options);

  /// Whether a parameter may stay without a gradient.
  bool may_be_unused() const { return may_be_unused_; }
  /// Whether the ranks tell each other what they used, at the end of their backward `number`, from 0 on.
  bool agrees(std::uint64_t number) const { return may_be_unused_ && (!static_graph_ || number == 0); }

  /// `parameter` has a gradient, of a backward whose gradients stay local, too.
  void note(std::size_t parameter) { used_[parameter] = true; }
  /// By parameter: noted since end().
  const std::vector<bool>& used() const { return used_; }

  /// A backward begins.
  void begin();
  /// Of a static graph that is known: whether `parameter` will get no gradient.
  bool will_be_unused(std::size_t parameter) const { return !graph_.empty() && graph_[parameter] == 0; }
  /// A gradient of `parameter` came in this backward. Whether it is the last one, as far as that is known: of a static
  /// graph in its first backward none is.
  bool count(std::size_t parameter);
  /// A parameter that stays without one gets zeros, or keeps what local backwards have left.
  void fill(std::size_t parameter);

  /// Collective.
  void agree(comm::Group& group);
  /// Whether any rank used it, as last agreed.
  bool used_by_any(std::size_t parameter) const { return used_by_any_[parameter]; }
  /// Of a static graph: the first parameter that got another number of gradients than in the first backward, which is
  /// remembered.
  struct Difference {
    std::size_t parameter;
    std::string what;
  };
  std::optional<Difference> check_graph();
  /// Nobody keeps zeros for a gradient that nobody has.
  void end();

 private:
  std::vector<at::Tensor> parameters_;
  const bool static_graph_;
  const bool may_be_unused_;
  std::vector<bool> used_;         ///< by parameter, as all of these
  std::vector<bool> used_by_any_;  ///< at first all
  std::vector<bool> filled_;       ///< with zeros, in this backward
  std::vector<int> gradients_;     ///< in this backward
  std::vector<int> graph_;         ///< the same of a static graph's first backward; empty: there was none
};

}  // namespace lockstep::parallel
