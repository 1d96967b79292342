#include "lockstep/data/samplers/deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::usage_error;
using Indices = std::vector<std::int64_t>;

Indices order_of(std::int64_t size) {
  Indices order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 100);
  return order;
}

TEST(Share, OfTheRest) {
  const Indices order = order_of(7);
  const auto share = [&](int rank, Remainder remainder) {
    return share_of(order, {.num_replicas = 3, .rank = rank, .remainder = remainder, .consumed = 2});
  };
  EXPECT_EQ(share(0, Remainder::pad), (Indices{102, 105}));
  EXPECT_EQ(share(2, Remainder::pad), (Indices{104, 100})) << "the order begins again, not its rest";
  EXPECT_EQ(share(0, Remainder::drop), Indices{102});
  EXPECT_EQ(share(2, Remainder::drop), Indices{104});
  EXPECT_EQ(share(0, Remainder::keep), (Indices{102, 105}));
  EXPECT_EQ(share(1, Remainder::keep), (Indices{103, 106}));
  EXPECT_EQ(share(2, Remainder::keep), Indices{104});
}

TEST(Share, OfNothingLeft) {
  for (const Remainder remainder : {Remainder::pad, Remainder::drop, Remainder::keep}) {
    EXPECT_EQ(share_of(order_of(5), {.num_replicas = 3, .rank = 1, .remainder = remainder, .consumed = 5}), Indices{});
    EXPECT_EQ(share_of({}, {.num_replicas = 3, .rank = 1, .remainder = remainder}), Indices{});
  }
}

TEST(Share, RefusesWhatCannotBe) {
  EXPECT_EQ(usage_error([] { share_size(5, {.num_replicas = 2, .rank = 2}); }),
            "distributed sampler: rank 2 is not in 0 ... 1 (num_replicas 2)");
  EXPECT_EQ(usage_error([] { share_size(5, {.consumed = 6}); }), "distributed sampler: 6 samples consumed of 5");
  usage_error([] { share_size(5, {.consumed = -1}); });
  usage_error([] { share_size(-1, {}); });
}

TEST(EvaluationIndices, HaveEachSampleOnce) {
  for (const std::int64_t size : {0, 1, 5, 12, 100}) {
    for (const int replicas : {1, 2, 3, 7, 12, 20}) {
      Indices all;
      std::size_t least = 1000, most = 0;
      for (int rank = 0; rank < replicas; ++rank) {
        const Indices mine = evaluation_indices(size, replicas, rank);
        least = std::min(least, mine.size());
        most = std::max(most, mine.size());
        all.insert(all.end(), mine.begin(), mine.end());
      }
      EXPECT_LE(most - least, 1u);
      std::ranges::sort(all);
      Indices expected(static_cast<std::size_t>(size));
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(all, expected) << size << " samples, " << replicas << " ranks";
    }
  }
  EXPECT_EQ(evaluation_indices(8, 3, 1), (Indices{1, 4, 7}));
  EXPECT_EQ(evaluation_indices(8, 3, 2), (Indices{2, 5}));
  usage_error([] { evaluation_indices(8, 3, 3); });
  usage_error([] { evaluation_indices(-8, 3, 0); });
}

TEST(CutIntoBatches, LeavesTheLastOneSmallerOrOut) {
  using Batches = std::vector<Indices>;
  EXPECT_EQ(cut_into_batches(order_of(5), 2), (Batches{{100, 101}, {102, 103}, {104}}));
  EXPECT_EQ(cut_into_batches(order_of(5), 2, true), (Batches{{100, 101}, {102, 103}}));
  EXPECT_EQ(cut_into_batches(order_of(4), 2, true), (Batches{{100, 101}, {102, 103}}));
  EXPECT_EQ(cut_into_batches(order_of(2), 3), (Batches{{100, 101}}));
  EXPECT_EQ(cut_into_batches(order_of(2), 3, true), Batches{});
  EXPECT_EQ(cut_into_batches({}, 3), Batches{});
  EXPECT_EQ(usage_error([] { cut_into_batches({}, 0); }), "batches of 0 samples, at least 1 expected");
}

}  // namespace
}  // namespace lockstep::data
