#include "lockstep/parallel/exchange_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace lockstep::parallel {
namespace {

using state::Layout;
using ::testing::ElementsAre;

// A flat range of so many elements; the last tenth of them has bfloat16 gradients.
Layout layout_of(std::int64_t elements, int shards) {
  const auto tensor = [](const std::string& name, std::int64_t size) {
    return state::TensorSpec{.name = name, .sizes = {size}, .strides = {1}};
  };
  std::vector<state::TensorSpec> parameters{tensor("a", elements - elements / 10), tensor("b", elements / 10)};
  parameters[1].gradients = at::kBFloat16;
  return Layout(parameters, {}, {.shards = shards, .slots = 1});
}

TEST(WholeSubtrees, AreTheLargestOnesOfTheTree) {
  EXPECT_THAT(whole_subtrees(4, {0, 2}), ElementsAre(ShardSpan{0, 2}));
  EXPECT_THAT(whole_subtrees(4, {0, 3}), ElementsAre(ShardSpan{0, 2}, ShardSpan{2, 3}));
  EXPECT_THAT(whole_subtrees(4, {3, 4}), ElementsAre(ShardSpan{3, 4}));
  EXPECT_THAT(whole_subtrees(9, {3, 6}), ElementsAre(ShardSpan{3, 4}, ShardSpan{4, 6}));
  EXPECT_THAT(whole_subtrees(9, {0, 9}), ElementsAre(ShardSpan{0, 9}));
}

// Every element has one owner, and all who hold a piece know the same of it.
TEST(ExchangePieces, CoverTheRangeOnEachNodeAlike) {
  for (const std::vector<int>& counts : std::vector<std::vector<int>>{{1, 1}, {3, 1}, {2, 2, 2}, {1, 4, 2}})
    for (const std::int64_t elements : {10, 1'000, 70'000, 400'000}) {
      const NodeRanks ranks{counts};
      const Layout layout = layout_of(elements, ranks.world());
      std::vector<std::vector<ExchangePiece>> by_rank;
      for (int node = 0; node < ranks.nodes(); ++node) {
        std::size_t at = 0;
        for (int local = 0; local < counts[std::size_t(node)]; ++local) {
          by_rank.push_back(exchange_pieces(layout, ranks, node, local));
          for (const ExchangePiece& piece : by_rank.back()) {
            EXPECT_EQ(piece.range.begin, at);
            EXPECT_EQ(piece.holders[std::size_t(node)], ranks.first(node) + local);
            at = piece.range.end;
          }
        }
        EXPECT_EQ(at, layout.elements());
      }
      for (const std::vector<ExchangePiece>& pieces : by_rank)
        for (const ExchangePiece& piece : pieces)
          for (const int holder : piece.holders)
            EXPECT_THAT(by_rank[std::size_t(holder)], ::testing::Contains(::testing::Truly([&](const auto& other) {
                          return other.range == piece.range && other.owner == piece.owner &&
                                 other.holders == piece.holders;
                        })));
    }
}

// Where each node has one aligned run of shards, a node sends what it would send in a ring.
TEST(SentBytes, AreThoseOfARingWhereRunsAreAligned) {
  const auto layout = [](int shards) {
    return Layout({{.name = "w", .sizes = {1 << 20}, .strides = {1}}}, {}, {.shards = shards, .slots = 1});
  };
  const double bytes = double(layout(4).elements() * sizeof(float));
  for (const std::vector<int>& counts : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {2, 2, 2, 2}}) {
    const NodeRanks ranks{counts};
    const double ring = 2 * bytes * (ranks.nodes() - 1) / ranks.nodes();
    for (int node = 0; node < ranks.nodes(); ++node)
      EXPECT_NEAR(double(sent_bytes(layout(ranks.world()), ranks, node)) / ring, 1, 1e-3) << node;
  }
  EXPECT_GT(sent_bytes(layout(4), NodeRanks{{3, 1}}, 0), sent_bytes(layout(4), NodeRanks{{3, 1}}, 1));
}

}  // namespace
}  // namespace lockstep::parallel
