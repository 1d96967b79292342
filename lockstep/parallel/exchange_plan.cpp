#include "lockstep/parallel/exchange_plan.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "lockstep/base/tree.h"

namespace lockstep::parallel {
namespace {

// Pieces begin on cache lines of every array.
constexpr std::size_t kEdge = 64;

void collect(int lo, int hi, ShardSpan held, std::vector<ShardSpan>& found) {
  if (lo >= held.last || hi <= held.first) return;
  if (held.first <= lo && hi <= held.last) {
    found.push_back({lo, hi});
    return;
  }
  const int middle = lo + base::tree_split(hi - lo);
  collect(lo, middle, held, found);
  collect(middle, hi, held, found);
}

// Where the slices of all nodes begin and end, and the kinds of gradients change.
std::set<std::size_t> edges_of(const state::Layout& layout, const NodeRanks& ranks) {
  std::set<std::size_t> edges{layout.elements()};
  for (const state::Part& part : layout.parts()) edges.insert(part.range.begin);
  for (const int count : ranks.counts)
    for (int local = 0; local < count; ++local) edges.insert(layout.slice(local, count).begin);
  return edges;
}

int holder_of(const state::Layout& layout, int ranks, std::size_t element) {
  int local = 0;
  while (layout.slice(local, ranks).end <= element) ++local;
  return local;
}

}  // namespace

int NodeRanks::first(int node) const { return std::accumulate(counts.begin(), counts.begin() + node, 0); }

ShardSpan NodeRanks::shards_of(int node, int shards) const {
  const int begin = first(node);
  return {parallel::shards_of(begin, world(), shards).first,
          parallel::shards_of(begin + counts[std::size_t(node)] - 1, world(), shards).last};
}

// A stretch between two edges has one holder on each node, and is cut into a piece for each node to own.
std::vector<ExchangePiece> exchange_pieces(const state::Layout& layout, const NodeRanks& ranks, int node, int local) {
  const state::Slice mine = layout.slice(local, ranks.counts[std::size_t(node)]);
  std::vector<ExchangePiece> pieces;
  const std::set<std::size_t> edges = edges_of(layout, ranks);
  for (auto edge = edges.lower_bound(mine.begin); edge != edges.end() && *edge < mine.end; ++edge) {
    const std::size_t begin = *edge, end = *std::next(edge);
    std::vector<int> holders;
    for (int n = 0; n < ranks.nodes(); ++n)
      holders.push_back(ranks.first(n) + holder_of(layout, ranks.counts[std::size_t(n)], begin));
    const auto cut = [&](int n) {
      const std::size_t lines = (end - begin + kEdge - 1) / kEdge;
      return std::min(end, begin + lines * std::size_t(n) / std::size_t(ranks.nodes()) * kEdge);
    };
    for (int n = 0; n < ranks.nodes(); ++n)
      if (cut(n) < cut(n + 1)) pieces.push_back({.range = {cut(n), cut(n + 1)}, .owner = n, .holders = holders});
  }
  return pieces;
}

std::vector<ShardSpan> whole_subtrees(int shards, ShardSpan held) {
  std::vector<ShardSpan> found;
  collect(0, shards, held, found);
  return found;
}

std::size_t kept_bytes(const state::Layout& layout) {
  return layout.named_bytes(0, layout.options().bytes.size()) - layout.named_bytes(0, 0);
}

std::uint64_t sent_bytes(const state::Layout& layout, const NodeRanks& ranks, int node) {
  const std::vector<ShardSpan> subtrees =
      whole_subtrees(layout.options().shards, ranks.shards_of(node, layout.options().shards));
  std::uint64_t bytes = 0;
  for (int local = 0; local < ranks.counts[std::size_t(node)]; ++local)
    for (const ExchangePiece& piece : exchange_pieces(layout, ranks, node, local)) {
      const std::uint64_t elements = piece.range.end - piece.range.begin;
      if (piece.owner == node) {
        bytes += elements * sizeof(float) * std::uint64_t(ranks.nodes() - 1);
        continue;
      }
      const state::Part& part = layout.part_at(piece.range.begin);
      for (const ShardSpan& subtree : subtrees)
        bytes += elements * (subtree.count() == 1 ? c10::elementSize(part.gradients) : sizeof(float));
    }
  return bytes;
}

std::size_t told_bytes_of_shard(const state::Layout& layout) { return layout.use_bytes() + sizeof(state::ShardRecord); }

std::uint64_t told_bytes(const state::Layout& layout, const NodeRanks& ranks, int node) {
  const ShardSpan shards = ranks.shards_of(node, layout.options().shards);
  std::uint64_t bytes = std::uint64_t(shards.count()) * told_bytes_of_shard(layout);
  if (node == 0) bytes += layout.module_buffer_bytes() + kept_bytes(layout);
  return bytes * std::uint64_t(ranks.nodes() - 1);
}

std::string describe_traffic(const state::Layout& layout, const NodeRanks& ranks) {
  std::uint64_t all = 0, most = 0;
  for (int node = 0; node < ranks.nodes(); ++node) {
    const std::uint64_t bytes = sent_bytes(layout, ranks, node) + told_bytes(layout, ranks, node);
    all += bytes;
    most = std::max(most, bytes);
  }
  return std::to_string(ranks.nodes()) + " nodes send each other " + std::to_string(all) +
         " bytes in each step, one of them " + std::to_string(most);
}

}  // namespace lockstep::parallel
