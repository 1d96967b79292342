#pragma once

// Memory for what the ranks of a node add up to, as it travels: a value of so many elements for each of the node's runs
// (level_plan.h).

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/network/subtree_sums.h"

namespace lockstep::comm {

class RunValues {
 public:
  /// Both must outlive it.
  RunValues(const SubtreeSums& sums, const std::vector<RankSpan>& runs, std::size_t elements)
      : sums_(&sums), runs_(&runs) {
    for (const RankSpan& run : runs)
      if (elements > 0) rooms_.push_back(std::make_unique_for_overwrite<std::byte[]>(elements * sums.width_of(run)));
  }

  std::size_t size() const { return runs_->size(); }

  /// Elements [first, first + n), of what the ranks of a node have, the first of which is `first_rank`.
  void add_up(const std::vector<const std::byte*>& inputs, int first_rank, std::size_t first, std::size_t n) {
    for (std::size_t i = 0; i < size(); ++i)
      sums_->add_up(run(i), inputs.data() + (run(i).first - first_rank), n, bytes(i, {first, first + n}).data());
  }

  std::span<std::byte> bytes(std::size_t i, const ElementRange& range) const {
    if (rooms_.empty()) return {};
    const std::size_t width = sums_->width_of(run(i));
    return {rooms_[i].get() + range.begin * width, range.size() * width};
  }

  /// From an element on.
  SubtreeValue value(std::size_t i, std::size_t first = 0) const { return {run(i), bytes(i, {first, first}).data()}; }

 private:
  const RankSpan& run(std::size_t i) const { return (*runs_)[i]; }

  const SubtreeSums* sums_;
  const std::vector<RankSpan>* runs_;
  std::vector<std::unique_ptr<std::byte[]>> rooms_;  ///< none of no elements
};

}  // namespace lockstep::comm
