#include "lockstep/comm/network/level_plan.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "lockstep/base/subtrees.h"

namespace lockstep::comm {

Levels::Levels(const std::vector<int>& nodes) {
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    if (rank == 0 || nodes[rank] != nodes[rank - 1]) firsts_.push_back(int(rank));
  firsts_.push_back(int(nodes.size()));
  std::set<int> counts;
  for (int node = 0; node < this->nodes(); ++node) {
    counts.insert(count(node));
    runs_.push_back(base::whole_subtrees(world(), {first(node), first(node + 1)}));
  }
  counts_.assign(counts.begin(), counts.end());
}

int Levels::node_of(int rank) const {
  return int(std::upper_bound(firsts_.begin(), firsts_.end(), rank) - firsts_.begin()) - 1;
}

std::vector<Stretch> stretches_of(const Levels& levels, std::size_t elements, int node, int local) {
  const Shares mine{elements, levels.count(node)};
  const std::size_t begin = mine.begin(local), end = mine.begin(local + 1);
  std::set<std::size_t> edges;
  for (const int count : levels.counts()) {
    const Shares theirs{elements, count};
    for (int other = 0; other <= count; ++other)
      if (const std::size_t edge = theirs.begin(other); begin <= edge && edge <= end) edges.insert(edge);
  }
  std::vector<Stretch> found;
  for (auto edge = edges.begin(); edge != edges.end() && *edge < end; ++edge) {
    Stretch stretch{.range = {*edge, *std::next(edge)}, .holders = {}};
    // The last whose share begins at the edge or before it.
    for (int each = 0; each < levels.nodes(); ++each) {
      const std::size_t count = std::size_t(levels.count(each));
      stretch.holders.push_back(levels.first(each) + int((count * (*edge + 1) - 1) / elements));
    }
    found.push_back(std::move(stretch));
  }
  return found;
}

Stretch stretch_of_leaders(const Levels& levels, std::size_t elements) {
  Stretch all{.range = {0, elements}, .holders = {}};
  for (int node = 0; node < levels.nodes(); ++node) all.holders.push_back(levels.first(node));
  return all;
}

ElementRange part_of(const ElementRange& range, int part, int parts) {
  const auto edge = [&](int number) { return range.begin + range.size() * std::size_t(number) / std::size_t(parts); };
  return {edge(part), edge(part + 1)};
}

}  // namespace lockstep::comm
