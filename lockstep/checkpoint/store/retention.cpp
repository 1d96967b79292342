#include "lockstep/checkpoint/store/retention.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "lockstep/checkpoint/store/step_folders.h"

namespace lockstep::checkpoint {
namespace {

// From the best on; without those that have no number.
std::vector<Stored> ranked(const std::vector<Stored>& all, bool smaller_is_better) {
  std::vector<Stored> found;
  for (const Stored& stored : all)
    if (stored.metric && !std::isnan(*stored.metric)) found.push_back(stored);
  std::ranges::sort(found, [&](const Stored& a, const Stored& b) {
    if (*a.metric != *b.metric) return smaller_is_better ? *a.metric < *b.metric : *a.metric > *b.metric;
    return a.step < b.step;
  });
  return found;
}

}  // namespace

std::optional<std::uint64_t> best_of(const std::vector<Stored>& all, bool smaller_is_better) {
  const std::vector<Stored> found = ranked(all, smaller_is_better);
  return found.empty() ? std::nullopt : std::optional(found.front().step);
}

std::vector<std::uint64_t> surplus(const std::vector<Stored>& all, const Retention& retention) {
  if (retention.keep <= 0) return {};
  std::vector<std::uint64_t> steps;
  std::optional<std::uint64_t> newest_good;
  for (const Stored& stored : all) {
    steps.push_back(stored.step);
    if (stored.good && (!newest_good || stored.step > *newest_good)) newest_good = stored.step;
  }
  if (!newest_good) return {};
  steps = newest_first(std::move(steps), newest_good);
  const std::size_t keep = std::min(steps.size(), std::size_t(retention.keep));
  std::set<std::uint64_t> stay(steps.begin(), steps.begin() + std::ptrdiff_t(keep));
  for (const Stored& stored : all)
    if (!stored.is_readable) stay.insert(stored.step);
  const std::vector<Stored> best = ranked(all, retention.smaller_is_better);
  for (std::size_t i = 0; i < best.size() && i < std::size_t(std::max(retention.best, 0)); ++i)
    stay.insert(best[i].step);
  std::erase_if(steps, [&](std::uint64_t step) { return stay.contains(step); });
  std::ranges::sort(steps);
  return steps;
}

}  // namespace lockstep::checkpoint
