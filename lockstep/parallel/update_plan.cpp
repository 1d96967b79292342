#include "lockstep/parallel/update_plan.h"

#include <algorithm>

namespace lockstep::parallel {
namespace {

// The parameters that have elements, in the order of their places.
std::vector<std::size_t> by_place(const state::Layout& layout) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < layout.parameters().size(); ++i)
    if (layout.parameters()[i].elements > 0) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return layout.parameters()[a].offset < layout.parameters()[b].offset;
  });
  return order;
}

}  // namespace

UpdatePlan::UpdatePlan(const state::Layout& layout, state::Slice mine) : layout_(layout) {
  const std::vector<std::size_t> order = by_place(layout);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const state::Part& part = layout.part_of(order[i]);
    const std::size_t next = i + 1 < order.size() ? layout.parameters()[order[i + 1]].offset : part.range.end;
    const std::size_t begin = std::max(mine.begin, layout.parameters()[order[i]].offset);
    const std::size_t end = std::min({mine.end, next, part.range.end});
    if (begin < end) stretches_.push_back({order[i], &part, {begin, end}});
  }
}

void UpdatePlan::choose(const optim::Rules& rules, const std::uint64_t* step_counts) {
  rules_.clear();
  for (Stretch& stretch : stretches_) {
    const optim::RuleKey key{.group = stretch.part->group, .step = step_counts[stretch.parameter] + 1};
    const auto found = std::find_if(rules_.begin(), rules_.end(), [&](const auto& one) { return one.first == key; });
    stretch.rule = std::size_t(found - rules_.begin());
    if (found == rules_.end()) rules_.emplace_back(key, rules(key));
  }
}

void UpdatePlan::fill(std::vector<Piece>& pieces, const std::vector<bool>& used) const {
  pieces.clear();
  const Stretch* last = nullptr;
  for (const Stretch& stretch : stretches_) {
    const bool same = last != nullptr && !layout_.options().parameter_norms && last->part == stretch.part &&
                      last->rule == stretch.rule && used[last->parameter] == used[stretch.parameter];
    last = &stretch;
    const std::size_t first = stretch.part->range.begin;
    if (same) {
      pieces.back().range.end = stretch.range.end - first;
      continue;
    }
    const optim::Rule kept = optim::KeepRule{.state_arrays = layout_.options().optimizer_arrays};
    const optim::Rule& rule = used[stretch.parameter] ? rules_[stretch.rule].second : kept;
    const state::Slice range = {stretch.range.begin - first, stretch.range.end - first};
    pieces.push_back({stretch.part, range, stretch.parameter, rule});
  }
}

}  // namespace lockstep::parallel
