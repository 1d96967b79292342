#include "lockstep/parallel/exchange_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace lockstep::parallel {
namespace {

using state::Layout;
using ::testing::ElementsAre;

// A flat range of about so many elements, in ten parameters; each third of them has bfloat16 gradients.
Layout layout_of(std::int64_t elements, int shards, int shares = 1, bool copied = false) {
  std::vector<state::TensorSpec> parameters;
  for (int i = 0; i < 10; ++i) {
    parameters.push_back({.name = "p" + std::to_string(i), .sizes = {elements / 10}, .strides = {1}});
    if (i % 3 == 2) parameters.back().gradients = at::kBFloat16;
  }
  return Layout(parameters, {},
                {.shards = shards, .slots = 1, .optimizer_arrays = 1, .shares = shares, .copied = copied});
}

constexpr std::size_t kBytesOfWaves[] = {0, std::size_t(64) << 10, std::size_t(1) << 20};

bool lies_in(const state::Slice& range, const Wave& wave) {
  return std::ranges::any_of(wave.ranges,
                             [&](const state::Slice& one) { return one.begin <= range.begin && range.end <= one.end; });
}

TEST(Operands, AreOneOfANodeWhereItIsFast) {
  EXPECT_THAT(operands_of(9, {3, 6}, Reduction::exact), ElementsAre(ShardSpan{3, 4}, ShardSpan{4, 6}));
  EXPECT_THAT(operands_of(9, {3, 6}, Reduction::fast), ElementsAre(ShardSpan{3, 6}));
}

TEST(Waves, CoverTheRangeFromTheLastParameterOn) {
  for (const std::int64_t elements : {10, 70'000, 400'000})
    for (const std::size_t bytes : kBytesOfWaves) {
      const Layout layout = layout_of(elements, 1);
      std::size_t last = layout.parameters().size();
      std::vector<state::Slice> ranges;
      for (const Wave& wave : waves_of(layout, bytes)) {
        EXPECT_EQ(wave.last, last);
        EXPECT_LT(wave.first, wave.last);
        last = wave.first;
        for (std::size_t i = wave.first; i < wave.last; ++i) {
          const state::PlacedParameter& place = layout.parameters()[i];
          EXPECT_TRUE(lies_in({place.offset, place.offset + place.elements}, wave)) << place.spec.name;
        }
        ranges.insert(ranges.end(), wave.ranges.begin(), wave.ranges.end());
      }
      EXPECT_EQ(last, 0u);
      std::ranges::sort(ranges, {}, &state::Slice::begin);
      std::size_t at = 0;
      for (const state::Slice& range : ranges) {
        EXPECT_EQ(range.begin, at);
        at = range.end;
      }
      EXPECT_EQ(at, layout.elements());
    }
}

// Of 160,000 bytes each parameter.
TEST(Waves, EndWhereTheyHaveTheirBytes) {
  const Layout layout = layout_of(400'000, 1);
  EXPECT_EQ(waves_of(layout, 0).size(), 1u);
  EXPECT_EQ(waves_of(layout, 64 << 10).size(), 10u);
  const std::vector<Wave> two = waves_of(layout, 1 << 20);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].first, 3u) << "what lies behind the bfloat16 gradients goes with the last of them";
  for (const Wave& wave : two) EXPECT_EQ(wave.ranges.size(), 2u) << "one of each kind";
}

TEST(Waves, AreNoMoreThanAMessageCanCount) {
  std::vector<state::TensorSpec> parameters;
  for (int i = 0; i < 3000; ++i) parameters.push_back({.name = "p" + std::to_string(i), .sizes = {16}, .strides = {1}});
  const std::size_t waves = waves_of(Layout(parameters, {}, {.shards = 1, .slots = 1}), 1).size();
  EXPECT_LE(waves, 1000u);
  EXPECT_GE(waves, 500u);
}

TEST(Waves, OfNoElementsAreOne) {
  const Layout empty({{.name = "w", .sizes = {0}, .strides = {1}}}, {}, {.shards = 1, .slots = 1});
  const std::vector<Wave> waves = waves_of(empty, 1);
  ASSERT_EQ(waves.size(), 1u);
  EXPECT_EQ(waves[0].last, 1u);
  EXPECT_TRUE(waves[0].ranges.empty());
  EXPECT_EQ(waves_of(Layout({}, {}, {.shards = 1, .slots = 1}), 1).size(), 1u);
}

using Told = std::tuple<std::size_t, std::size_t, int, int, std::vector<int>>;

std::vector<Told> shared_with(const std::vector<ExchangePiece>& pieces, int rank) {
  std::vector<Told> shared;
  for (const ExchangePiece& piece : pieces)
    if (std::ranges::find(piece.holders, rank) != piece.holders.end())
      shared.emplace_back(piece.range.begin, piece.range.end, piece.owner, piece.wave, piece.holders);
  return shared;
}

// Of one node: each element has one owner, and lies in the wave of its parameter.
void expect_cover(std::vector<ExchangePiece> pieces, const Layout& layout, const std::vector<Wave>& waves) {
  std::ranges::sort(pieces, {}, [](const ExchangePiece& piece) { return piece.range.begin; });
  std::size_t at = 0;
  for (const ExchangePiece& piece : pieces) {
    EXPECT_EQ(piece.range.begin, at);
    EXPECT_EQ(&layout.part_at(piece.range.begin), &layout.part_at(piece.range.end - 1));
    EXPECT_TRUE(lies_in(piece.range, waves[std::size_t(piece.wave)]));
    at = piece.range.end;
  }
  EXPECT_EQ(at, layout.elements());
}

// Between two ranks messages are told apart by their order alone.
void expect_alike(const Layout& layout, const NodeRanks& ranks, std::size_t bytes) {
  const std::vector<Wave> waves = waves_of(layout, bytes);
  std::vector<std::vector<ExchangePiece>> by_rank;
  for (int node = 0; node < ranks.nodes(); ++node) {
    std::vector<ExchangePiece> of_node;
    for (int local = 0; local < ranks.counts[std::size_t(node)]; ++local) {
      by_rank.push_back(exchange_pieces(layout, ranks, node, local, waves));
      for (const ExchangePiece& piece : by_rank.back())
        EXPECT_EQ(piece.holders[std::size_t(node)], ranks.first(node) + local);
      EXPECT_TRUE(std::ranges::is_sorted(by_rank.back(), {}, &ExchangePiece::wave));
      of_node.insert(of_node.end(), by_rank.back().begin(), by_rank.back().end());
    }
    expect_cover(of_node, layout, waves);
  }
  for (int rank = 0; rank < ranks.world(); ++rank)
    for (int other = 0; other < ranks.world(); ++other)
      EXPECT_EQ(shared_with(by_rank[std::size_t(rank)], other), shared_with(by_rank[std::size_t(other)], rank));
}

std::vector<std::vector<int>> nodes_to_try() { return {{1, 1}, {3, 1}, {2, 2, 2}, {1, 4, 2}}; }

TEST(ExchangePieces, CoverTheRangeOnEachNodeAlike) {
  for (const std::vector<int>& counts : nodes_to_try())
    for (const std::int64_t elements : {10, 1'000, 70'000, 400'000})
      for (const std::size_t bytes : kBytesOfWaves) {
        const NodeRanks ranks{counts};
        expect_alike(layout_of(elements, ranks.world()), ranks, bytes);
        for (const bool copied : {false, true})
          expect_alike(layout_of(elements, ranks.world(), ranks.nodes(), copied), ranks, bytes);
      }
}

// So the rank that adds up a piece is the one that updates it.
TEST(ExchangePieces, AreOwnedByWhoKeepsTheStateOfThem) {
  for (const std::vector<int>& counts : nodes_to_try())
    for (const std::size_t bytes : kBytesOfWaves) {
      const NodeRanks ranks{counts};
      const Layout layout = layout_of(400'000, ranks.world(), ranks.nodes());
      std::size_t owned = 0;
      for (int node = 0; node < ranks.nodes(); ++node)
        for (int local = 0; local < counts[std::size_t(node)]; ++local) {
          const state::Slice mine = layout.slice_of_share(node, local, counts[std::size_t(node)]);
          for (const ExchangePiece& piece : exchange_pieces(layout, ranks, node, local, waves_of(layout, bytes))) {
            if (piece.owner != node) continue;
            owned += piece.range.end - piece.range.begin;
            EXPECT_LE(mine.begin, piece.range.begin);
            EXPECT_GE(mine.end, piece.range.end);
          }
        }
      EXPECT_EQ(owned, layout.elements());
    }
}

std::uint64_t sent(const Layout& layout, const NodeRanks& ranks, int node, std::size_t bytes = 0,
                   Reduction reduction = Reduction::exact, Compression compression = Compression::none) {
  return sent_bytes(layout, ranks, node, waves_of(layout, bytes), {reduction, compression});
}

std::uint64_t sent_by_all(const Layout& layout, const NodeRanks& ranks, std::size_t bytes, Reduction reduction,
                          Compression compression = Compression::none) {
  std::uint64_t all = 0;
  for (int node = 0; node < ranks.nodes(); ++node) all += sent(layout, ranks, node, bytes, reduction, compression);
  return all;
}

// Where each node has one aligned run of shards, a node sends what it would send in a ring; in any case where that is
// asked for.
TEST(SentBytes, AreThoseOfARingWhereRunsAreAligned) {
  const auto layout = [](int shards) {
    return Layout({{.name = "w", .sizes = {1 << 20}, .strides = {1}}}, {}, {.shards = shards, .slots = 1});
  };
  const double bytes = double(layout(4).elements() * sizeof(float));
  const auto expect_ring = [&](const NodeRanks& ranks, int shards, Reduction reduction) {
    const double ring = 2 * bytes * (ranks.nodes() - 1) / ranks.nodes();
    for (int node = 0; node < ranks.nodes(); ++node)
      EXPECT_NEAR(double(sent(layout(shards), ranks, node, 0, reduction)) / ring, 1, 1e-3) << node;
  };
  for (const std::vector<int>& counts : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {2, 2, 2, 2}})
    expect_ring(NodeRanks{counts}, NodeRanks{counts}.world(), Reduction::exact);
  const NodeRanks uneven{{3, 1}}, three{{1, 1, 1}};
  EXPECT_GT(sent(layout(4), uneven, 0), sent(layout(4), uneven, 1));
  expect_ring(uneven, 4, Reduction::fast);
  EXPECT_GT(sent(layout(9), three, 1), sent(layout(9), three, 1, 0, Reduction::fast));
  expect_ring(three, 9, Reduction::fast);
}

TEST(SentBytes, AreNoMoreInWaves) {
  for (const Reduction reduction : {Reduction::exact, Reduction::fast})
    for (const std::vector<int>& counts : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {1, 1, 1}}) {
      const NodeRanks ranks{counts};
      const Layout layout = layout_of(400'000, ranks.world());
      for (const std::size_t bytes : kBytesOfWaves)
        EXPECT_EQ(sent_by_all(layout, ranks, bytes, reduction), sent_by_all(layout, ranks, 0, reduction)) << bytes;
    }
}

// Who has a copy of a share adds up what lies in it, too, in the rank that updates it.
TEST(ExchangePieces, AreAddedUpByTheNextNodeWhereItHasACopy) {
  const NodeRanks ranks{{1, 4, 2}};
  const Layout layout = layout_of(400'000, ranks.world(), ranks.nodes(), /*copied=*/true);
  std::size_t added = 0;
  for (int node = 0; node < ranks.nodes(); ++node)
    for (int local = 0; local < ranks.counts[std::size_t(node)]; ++local) {
      const int before = (node + 2) % 3;
      const state::Slice mine = layout.slice_of_share(before, local, ranks.counts[std::size_t(node)]);
      for (const ExchangePiece& piece : exchange_pieces(layout, ranks, node, local, waves_of(layout, 0))) {
        EXPECT_EQ(piece.copier, (piece.owner + 1) % 3);
        EXPECT_EQ(piece.is_added_by(node), piece.owner == node || piece.owner == before);
        if (piece.owner != before) continue;
        added += piece.range.end - piece.range.begin;
        EXPECT_LE(mine.begin, piece.range.begin);
        EXPECT_GE(mine.end, piece.range.end);
      }
    }
  EXPECT_EQ(added, layout.elements());
  for (const ExchangePiece& piece : exchange_pieces(layout_of(400'000, 7, 3), ranks, 0, 0, waves_of(layout, 0)))
    EXPECT_EQ(piece.copier, -1);
}

// To each who adds up, and then to the rest: of two nodes as many, of many half as many more.
TEST(SentBytes, AreMoreWhereSharesAreCopied) {
  for (const int nodes : {2, 3, 4}) {
    const NodeRanks ranks{std::vector<int>(std::size_t(nodes), 1)};
    const auto layout = [&](bool copied) {
      return Layout({{.name = "w", .sizes = {1 << 20}, .strides = {1}}}, {},
                    {.shards = nodes, .slots = 1, .optimizer_arrays = 1, .shares = nodes, .copied = copied});
    };
    EXPECT_EQ(sent_by_all(layout(true), ranks, 0, Reduction::exact) * std::uint64_t(2 * nodes - 2),
              sent_by_all(layout(false), ranks, 0, Reduction::exact) * std::uint64_t(3 * nodes - 4));
  }
}

TEST(SentBytes, AreAsManyWhereTheOptimizersStateIsSharedOut) {
  for (const Reduction reduction : {Reduction::exact, Reduction::fast})
    for (const std::vector<int>& counts : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {1, 1, 1}}) {
      const NodeRanks ranks{counts};
      for (const std::size_t bytes : kBytesOfWaves)
        EXPECT_EQ(sent_by_all(layout_of(400'000, ranks.world(), ranks.nodes()), ranks, bytes, reduction),
                  sent_by_all(layout_of(400'000, ranks.world()), ranks, 0, reduction))
            << bytes;
    }
}

// Of float32 both ways; where weights go back, one way.
TEST(SentBytes, AreHalfWhereTheyAreCompressed) {
  const auto layout = [](int shards, int shares) {
    return Layout({{.name = "w", .sizes = {1 << 20}, .strides = {1}}}, {},
                  {.shards = shards, .slots = 1, .optimizer_arrays = 1, .shares = shares});
  };
  for (const Compression compression : {Compression::fp16, Compression::bf16})
    for (const std::vector<int>& counts : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {1, 1, 1}}) {
      const NodeRanks ranks{counts};
      const Layout whole = layout(ranks.world(), 1), shared_out = layout(ranks.world(), ranks.nodes());
      for (int node = 0; node < ranks.nodes(); ++node)
        EXPECT_EQ(2 * sent(whole, ranks, node, 0, Reduction::exact, compression), sent(whole, ranks, node));
      EXPECT_EQ(4 * sent_by_all(shared_out, ranks, 0, Reduction::exact, compression),
                3 * sent_by_all(shared_out, ranks, 0, Reduction::exact));
    }
}

// They say how many bytes that is before the first step.
TEST(SentBytes, AreToldWithTheCompression) {
  const NodeRanks ranks{{1, 1}};
  const Layout layout = layout_of(400'000, 2);
  const std::vector<Wave> waves = waves_of(layout, 0);
  std::uint64_t all = 0;
  for (int node = 0; node < 2; ++node)
    all += sent(layout, ranks, node, 0, Reduction::exact, Compression::bf16) + told_bytes(layout, ranks, node);
  EXPECT_THAT(describe_traffic(layout, ranks, waves, {.compression = Compression::bf16}),
              ::testing::HasSubstr(" " + std::to_string(all) + " bytes in each step"));
}

}  // namespace
}  // namespace lockstep::parallel
