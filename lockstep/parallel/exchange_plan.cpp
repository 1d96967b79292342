#include "lockstep/parallel/exchange_plan.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "lockstep/base/subtrees.h"
#include "lockstep/parallel/summation.h"

namespace lockstep::parallel {
namespace {

// Pieces begin on cache lines of every array.
constexpr std::size_t kEdge = 64;

// A message says the number of its exchange in 16 bits.
constexpr std::size_t kMostWaves = 1000;

std::size_t size_of(const state::Slice& slice) { return slice.end - slice.begin; }

// By parameter: where it lies, with the padding behind it; nothing where it has no elements.
std::vector<state::Slice> stretches_of(const state::Layout& layout) {
  std::map<std::size_t, std::size_t> by_offset;
  for (std::size_t i = 0; i < layout.parameters().size(); ++i)
    if (layout.parameters()[i].elements > 0) by_offset[layout.parameters()[i].offset] = i;
  std::vector<state::Slice> stretches(layout.parameters().size());
  std::size_t end = layout.elements();
  for (auto place = by_offset.rbegin(); place != by_offset.rend(); ++place) {
    stretches[place->second] = {place->first, end};
    end = place->first;
  }
  return stretches;
}

// In rising order, those that follow one another as one.
std::vector<state::Slice> seamless(std::vector<state::Slice> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const auto& one, const auto& other) { return one.begin < other.begin; });
  std::vector<state::Slice> found;
  for (const state::Slice& range : ranges) {
    if (!found.empty() && found.back().end == range.begin)
      found.back().end = range.end;
    else
      found.push_back(range);
  }
  return found;
}

// The number of each wave by where a range of it begins.
std::map<std::size_t, int> numbers_by_begin(const std::vector<Wave>& waves) {
  std::map<std::size_t, int> numbers;
  for (std::size_t wave = 0; wave < waves.size(); ++wave)
    for (const state::Slice& range : waves[wave].ranges) numbers[range.begin] = int(wave);
  return numbers;
}

// Where the slices of all nodes begin and end, and the kinds of gradients change.
std::set<std::size_t> edges_of(const state::Layout& layout, const NodeRanks& ranks) {
  std::set<std::size_t> edges{layout.elements()};
  for (const state::Part& part : layout.parts()) edges.insert(part.range.begin);
  for (const int count : ranks.counts)
    for (int share = 0; share < layout.options().shares; ++share)
      for (int local = 0; local < count; ++local) edges.insert(layout.slice_of_share(share, local, count).begin);
  return edges;
}

int share_of(const state::Layout& layout, std::size_t element) {
  int share = 0;
  while (layout.share(share).end <= element) ++share;
  return share;
}

int holder_of(const state::Layout& layout, int ranks, std::size_t element) {
  const int share = share_of(layout, element);
  int local = 0;
  while (layout.slice_of_share(share, local, ranks).end <= element) ++local;
  return local;
}

// What the nodes own of a stretch, one behind the other: as much each, on cache lines of every array; or all, whoever
// keeps the optimizer's state of it.
std::vector<state::Slice> cut_by_owner(const state::Layout& layout, int nodes, const state::Slice& stretch) {
  const bool shared_out = layout.options().shares > 1;
  const int owner = shared_out ? share_of(layout, stretch.begin) : 0;
  const auto edge = [&](int node) {
    if (shared_out) return node <= owner ? stretch.begin : stretch.end;
    const std::size_t lines = (size_of(stretch) + kEdge - 1) / kEdge;
    return std::min(stretch.end, stretch.begin + lines * std::size_t(node) / std::size_t(nodes) * kEdge);
  };
  std::vector<state::Slice> owned;
  for (int node = 0; node < nodes; ++node) owned.push_back({edge(node), edge(node + 1)});
  return owned;
}

}  // namespace

int NodeRanks::first(int node) const { return std::accumulate(counts.begin(), counts.begin() + node, 0); }

ShardSpan NodeRanks::shards_of(int node, int shards) const {
  const int begin = first(node);
  return {parallel::shards_of(begin, world(), shards).first,
          parallel::shards_of(begin + counts[std::size_t(node)] - 1, world(), shards).last};
}

std::vector<Wave> waves_of(const state::Layout& layout, std::size_t bytes) {
  const std::size_t all = layout.elements() * sizeof(float);
  const std::size_t most = bytes == 0 ? std::numeric_limits<std::size_t>::max() : std::max(bytes, all / kMostWaves + 1);
  const std::vector<state::Slice> stretches = stretches_of(layout);
  std::vector<Wave> waves;
  std::size_t taken = 0;  // by the last of them
  for (std::size_t i = stretches.size(); i > 0; --i) {
    const state::Slice& stretch = stretches[i - 1];
    const std::size_t size = size_of(stretch) * sizeof(float);
    if (waves.empty() || (taken >= most && size > 0)) {
      waves.push_back({.first = i, .last = i});
      taken = 0;
    }
    waves.back().first = i - 1;
    if (size > 0) waves.back().ranges.push_back(stretch);
    taken += size;
  }
  if (waves.empty()) waves.emplace_back();
  for (Wave& wave : waves) wave.ranges = seamless(std::move(wave.ranges));
  return waves;
}

// A stretch between two edges has one holder on each node, and is cut into the pieces that the nodes own.
std::vector<ExchangePiece> exchange_pieces(const state::Layout& layout, const NodeRanks& ranks, int node, int local,
                                           const std::vector<Wave>& waves) {
  const std::map<std::size_t, int> numbers = numbers_by_begin(waves);
  std::vector<ExchangePiece> pieces;
  std::set<std::size_t> edges = edges_of(layout, ranks);
  for (const auto& [begin, wave] : numbers) edges.insert(begin);
  for (int share = 0; share < layout.options().shares; ++share) {
    const state::Slice mine = layout.slice_of_share(share, local, ranks.counts[std::size_t(node)]);
    for (auto edge = edges.lower_bound(mine.begin); edge != edges.end() && *edge < mine.end; ++edge) {
      const state::Slice stretch{*edge, *std::next(edge)};
      const int wave = std::prev(numbers.upper_bound(stretch.begin))->second;
      std::vector<int> holders;
      for (int n = 0; n < ranks.nodes(); ++n)
        holders.push_back(ranks.first(n) + holder_of(layout, ranks.counts[std::size_t(n)], stretch.begin));
      const std::vector<state::Slice> owned = cut_by_owner(layout, ranks.nodes(), stretch);
      const auto copier = [&](int n) { return layout.options().copied ? (n + 1) % ranks.nodes() : -1; };
      for (int n = 0; n < ranks.nodes(); ++n)
        if (const state::Slice& range = owned[std::size_t(n)]; range.begin < range.end)
          pieces.push_back({.range = range, .owner = n, .copier = copier(n), .holders = holders, .wave = wave});
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.wave < b.wave; });
  return pieces;
}

std::vector<ShardSpan> operands_of(int shards, ShardSpan held, Reduction reduction) {
  if (reduction == Reduction::fast) return {held};
  return base::whole_subtrees(shards, held);
}

std::size_t kept_bytes(const state::Layout& layout) {
  return layout.named_bytes(0, layout.options().bytes.size()) - layout.named_bytes(0, 0);
}

std::uint64_t sent_bytes(const state::Layout& layout, const NodeRanks& ranks, int node, const std::vector<Wave>& waves,
                         const SumOptions& options) {
  const int shards = layout.options().shards;
  const std::vector<ShardSpan> operands = operands_of(shards, ranks.shards_of(node, shards), options.reduction);
  const bool sends_weights = layout.options().shares > 1;
  const auto sums = sum_type(c10::ScalarType::Float, shards, options.compression);
  const std::size_t result = sends_weights ? sizeof(float) : c10::elementSize(sums);
  std::uint64_t bytes = 0;
  for (int local = 0; local < ranks.counts[std::size_t(node)]; ++local)
    for (const ExchangePiece& piece : exchange_pieces(layout, ranks, node, local, waves)) {
      const std::uint64_t elements = piece.range.end - piece.range.begin;
      std::uint64_t adders = 0, others = 0;  // nodes beside this one, and of these those that get what comes of it
      for (int other = 0; other < ranks.nodes(); ++other) {
        if (other == node) continue;
        adders += piece.is_added_by(other);
        others += !piece.is_added_by(other);
      }
      if (piece.owner == node) bytes += elements * result * others;
      const state::Part& part = layout.part_at(piece.range.begin);
      for (const ShardSpan& operand : operands)
        bytes += adders * elements * c10::elementSize(sum_type(part.gradients, operand.count(), options.compression));
    }
  return bytes;
}

std::uint64_t block_sum_bytes(const state::Layout& layout, int node) {
  if (layout.options().shares == 1) return 0;
  const state::Slice blocks = layout.blocks_of_share(node);
  return (blocks.end - blocks.begin) * sizeof(double) * std::uint64_t(layout.options().shares - 1);
}

std::size_t told_bytes_of_shard(const state::Layout& layout) { return layout.use_bytes() + sizeof(state::ShardRecord); }

std::uint64_t told_bytes(const state::Layout& layout, const NodeRanks& ranks, int node) {
  const ShardSpan shards = ranks.shards_of(node, layout.options().shards);
  std::uint64_t bytes = std::uint64_t(shards.count()) * told_bytes_of_shard(layout);
  if (node == 0) bytes += layout.module_buffer_bytes() + kept_bytes(layout);
  return bytes * std::uint64_t(ranks.nodes() - 1);
}

std::string describe_traffic(const state::Layout& layout, const NodeRanks& ranks, const std::vector<Wave>& waves,
                             const SumOptions& options) {
  std::uint64_t all = 0, most = 0, of_norm = 0;
  for (int node = 0; node < ranks.nodes(); ++node) {
    const std::uint64_t bytes = sent_bytes(layout, ranks, node, waves, options) + told_bytes(layout, ranks, node);
    all += bytes;
    most = std::max(most, bytes);
    of_norm += block_sum_bytes(layout, node);
  }
  return std::to_string(ranks.nodes()) + " nodes send each other " + std::to_string(all) +
         " bytes in each step, one of them " + std::to_string(most) +
         (waves.size() > 1 ? ", in " + std::to_string(waves.size()) + " waves" : "") +
         (of_norm > 0 ? "; a norm of the gradients takes " + std::to_string(of_norm) + " more" : "");
}

}  // namespace lockstep::parallel
