// all_to_all, and what is made of a group's collectives.

#include "lockstep/comm/collectives.h"

#include <gmock/gmock.h>

#include "tests/contract/group_contract.h"
#include "tests/support/own_group.h"
#include "tests/support/usage_error.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

// Row `row` of rank `rank`: tells both.
at::Tensor rows_of(int rank, std::int64_t rows, at::ScalarType dtype = at::kFloat) {
  return (torch::arange(rows * 3, torch::kLong).remainder(5) + rank).to(dtype).view({rows, 3});
}

TEST_P(GroupContract, AllToAllExchangesParts) {
  run([](auto group) {
    const int ranks = group->size();
    // It moves bytes: wide and narrow ones; what a post holds, and over several chunks.
    for (at::ScalarType dtype : {at::kDouble, at::kBool})
      for (std::int64_t part : {0, 1, 5, 500, 20'001}) {
        const auto sent = [&](int rank) { return example(rank, part * ranks, dtype); };
        const at::Tensor output = torch::empty({part * ranks}, dtype);
        group->all_to_all(output, sent(group->rank()));
        for (int rank = 0; rank < ranks; ++rank)
          ASSERT_TRUE(
              torch::equal(output.narrow(0, rank * part, part), sent(rank).narrow(0, group->rank() * part, part)))
              << dtype << " x " << part << " from " << rank;
      }
  });
}

TEST_P(GroupContract, AllToAllOfSharedAndStridedTensors) {
  run([](auto group) {
    const int ranks = group->size();
    const std::int64_t part = 3000;
    const at::Tensor shared = group->shared_empty({2, part * ranks});
    shared[0].copy_(random_example(group->rank(), part * ranks));
    group->all_to_all(shared[1], shared[0]);
    for (int rank = 0; rank < ranks; ++rank)
      ASSERT_TRUE(torch::equal(shared[1].narrow(0, rank * part, part),
                               random_example(rank, part * ranks).narrow(0, group->rank() * part, part)));
    const at::Tensor columns = torch::zeros({part * ranks, 2});
    group->all_to_all(columns.select(1, 1), shared[0]);
    ASSERT_TRUE(torch::equal(columns.select(1, 1), shared[1]));
    // What a group of one's own has, when it has no better.
    support::BareGroup bare(group);
    const at::Tensor gathered = torch::empty({part * ranks});
    bare.all_to_all(gathered, shared[0]);
    ASSERT_TRUE(torch::equal(gathered, shared[1]));
    EXPECT_THROW(group->all_to_all(torch::zeros({ranks}), torch::zeros({2 * ranks})), UsageError);
    EXPECT_THROW(group->all_to_all(torch::zeros({ranks}, torch::kLong), torch::zeros({ranks})), UsageError);
    if (ranks > 1) {
      EXPECT_THROW(group->all_to_all(torch::zeros({1}), torch::zeros({1})), UsageError);
    }
  });
}

TEST_P(GroupContract, GatheredAndScatteredInPlace) {
  run([](auto group) {
    const int ranks = group->size(), rank = group->rank();
    for (const bool shared : {false, true})
      for (const std::int64_t size : {1, 500, 70'001}) {
        const at::Tensor all = shared ? group->shared_empty({ranks, size}) : torch::zeros({ranks, size});
        all[rank].copy_(random_example(rank, size));
        group->all_gather_into_tensor(all, all[rank]);
        for (int peer = 0; peer < ranks; ++peer)
          ASSERT_TRUE(torch::equal(all[peer], random_example(peer, size))) << size << " of " << peer << ", " << shared;
        all.add_(rank);
        group->reduce_scatter(all[rank], all, ReduceOp::max);
        ASSERT_TRUE(torch::equal(all[rank], random_example(rank, size) + (ranks - 1))) << size << ", " << shared;
      }
  });
}

// Where another rank's part, or a piece of it, is written while it is still read.
TEST_P(GroupContract, TensorsThatOverlapAreRefused) {
  run([](auto group) {
    const int ranks = group->size(), rank = group->rank();
    const std::int64_t part = 4;
    const at::Tensor base = torch::zeros({(ranks + 1) * part});
    const at::Tensor whole = base.narrow(0, 0, ranks * part), apart = base.narrow(0, ranks * part, part);
    std::vector<at::Tensor> wrong{base.narrow(0, rank * part + 1, part)};
    if (ranks > 1) wrong.push_back(whole.narrow(0, (rank + 1) % ranks * part, part));
    for (const at::Tensor& one : wrong) {
      EXPECT_THAT(testing::usage_error([&] { group->all_gather_into_tensor(whole, one); }),
                  HasSubstr("all_gather_into_tensor: input overlaps output; "));
      EXPECT_THAT(testing::usage_error([&] { group->reduce_scatter(one, whole); }),
                  HasSubstr("reduce_scatter: output overlaps input; "));
      EXPECT_THAT(testing::usage_error([&] { support::BareGroup(group).all_gather_into_tensor(whole, one); }),
                  HasSubstr("overlaps"));
    }
    if (ranks > 1) {
      EXPECT_THAT(testing::usage_error([&] { group->all_to_all(whole, whole); }), HasSubstr("overlaps"));
    }
    const at::Tensor none = torch::zeros({0});
    group->all_to_all(none, none);
    // In one storage, and apart; of the second it cannot be told from strides alone.
    apart.fill_(rank + 1);
    group->all_gather_into_tensor(whole, apart);
    const at::Tensor columns = torch::zeros({ranks * part, 2}), input = columns.select(1, 1).narrow(0, 0, part);
    input.fill_(rank + 1);
    group->all_gather_into_tensor(columns.select(1, 0), input);
    const at::Tensor expected = torch::arange(1, ranks + 1).repeat_interleave(part).to(torch::kFloat);
    EXPECT_TRUE(torch::equal(whole, expected));
    EXPECT_TRUE(torch::equal(columns.select(1, 0), expected));
  });
}

TEST_P(GroupContract, RowsOfUnevenNumbersAreGathered) {
  run([](auto group) {
    for (at::ScalarType dtype : {at::kFloat, at::kLong, at::kBool, at::kBFloat16})
      for (const std::int64_t scale : {0, 1, 5000}) {
        const auto value = [&](int rank) { return rows_of(rank, rank * scale, dtype); };
        const auto gathered = all_gather_uneven(*group, value(group->rank()));
        ASSERT_EQ(int(gathered.size()), group->size());
        for (int rank = 0; rank < group->size(); ++rank)
          ASSERT_TRUE(torch::equal(gathered[std::size_t(rank)], value(rank))) << dtype << ", scale " << scale;
      }
    if (group->size() == 1) return;
    const auto refusal = [&](const at::Tensor& tensor) {
      return testing::usage_error([&] { (void)all_gather_uneven(*group, tensor); });
    };
    EXPECT_THAT(refusal(torch::zeros({2, group->rank() == 1 ? 3 : 4})),
                HasSubstr("rank 0 has Float[2, 4], rank 1 Float[2, 3]"));
    EXPECT_THAT(refusal(torch::zeros({2}, group->rank() == 1 ? at::kLong : at::kInt)), HasSubstr("rank 1 Long[2]"));
    EXPECT_THAT(refusal(torch::zeros({})), HasSubstr("0"));
    group->barrier();  // is as good as before
  });
}

TEST_P(GroupContract, UnevenPartsAreExchanged) {
  run([](auto group) {
    const int ranks = group->size();
    // Rank s sends (s + 2 r) % 4 rows to rank r.
    const auto split = [](int from, int to) { return std::int64_t((from + 2 * to) % 4); };
    std::vector<std::int64_t> splits, expected;
    std::vector<at::Tensor> parts{torch::zeros({0, 3})};
    for (int rank = 0; rank < ranks; ++rank) {
      splits.push_back(split(group->rank(), rank));
      expected.push_back(split(rank, group->rank()));
      std::int64_t before = 0, all = 0;
      for (int to = 0; to < ranks; ++to) (to < group->rank() ? before : all) += split(rank, to);
      parts.push_back(rows_of(rank, before + all).narrow(0, before, expected.back()));
    }
    const std::int64_t rows = std::accumulate(splits.begin(), splits.end(), std::int64_t(0));
    const Received received = all_to_all_uneven(*group, rows_of(group->rank(), rows), splits);
    EXPECT_EQ(received.splits, expected);
    EXPECT_TRUE(torch::equal(received.output, torch::cat(parts)));
    // One rank's fault is told to all.
    std::vector<std::int64_t> wrong(std::size_t(ranks), 1);
    if (group->rank() == ranks - 1) wrong[0] = -1;
    EXPECT_THAT(testing::usage_error([&] { (void)all_to_all_uneven(*group, rows_of(0, ranks), wrong); }),
                HasSubstr("rank " + std::to_string(ranks - 1) + " has " + std::to_string(ranks) + " rows"));
    group->barrier();
  });
}

TEST_P(GroupContract, GatherScatterAndReduceKnowTheirRoot) {
  run([](auto group) {
    const int ranks = group->size();
    const int root = ranks - 1;
    const at::Tensor mine = rows_of(group->rank(), 4);
    const auto gathered = gather(*group, mine, root);
    ASSERT_EQ(int(gathered.size()), group->rank() == root ? ranks : 0);
    for (std::size_t rank = 0; rank < gathered.size(); ++rank)
      EXPECT_TRUE(torch::equal(gathered[rank], rows_of(int(rank), 4)));
    const at::Tensor output = torch::zeros({4, 3});
    scatter(*group, output, gathered, root);
    EXPECT_TRUE(torch::equal(output, mine)) << "what was gathered is scattered";
    reduce(*group, output, root, ReduceOp::max);
    EXPECT_TRUE(torch::equal(output, rows_of(group->rank() == root ? root : group->rank(), 4)));
    EXPECT_THROW(gather(*group, mine, ranks), UsageError);
    EXPECT_THROW(scatter(*group, output, {}, -1), UsageError);
  });
}

TEST_P(GroupContract, ScatterOfTooFewEndsAll) {
  run([](auto group) {
    const at::Tensor output = torch::zeros({2});
    try {
      scatter(*group, output, {}, 0);
      ADD_FAILURE() << "nothing was scattered";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("the root needs " + std::to_string(group->size()) + " inputs"));
    }
  });
}

TEST_P(GroupContract, CoalescedHasTheBitsOfSingleCalls) {
  run([](auto group) {
    const auto make = [](int rank) {
      return std::vector<at::Tensor>{random_example(rank, 1000).view({10, 100}).t(),
                                     example(rank, 3, at::kLong),
                                     torch::empty({0}),
                                     random_example(rank, 70'001),
                                     random_example(rank, 9).to(torch::kBFloat16),
                                     torch::full({}, float(rank))};
    };
    const std::vector<at::Tensor> together = make(group->rank()), single = make(group->rank());
    all_reduce_coalesced(*group, together, ReduceOp::max);
    for (const at::Tensor& tensor : single) group->all_reduce(tensor, ReduceOp::max);
    for (std::size_t i = 0; i < single.size(); ++i) ASSERT_TRUE(torch::equal(together[i], single[i])) << i;
    const int root = group->size() - 1;
    const std::vector<at::Tensor> sent = make(group->rank());
    broadcast_coalesced(*group, sent, root);
    for (std::size_t i = 0; i < sent.size(); ++i) ASSERT_TRUE(torch::equal(sent[i], make(root)[i])) << i;
    all_reduce_coalesced(*group, {});
    EXPECT_THROW(all_reduce_coalesced(*group, {torch::zeros({1}, torch::kLong)}, ReduceOp::mean), UsageError);
  });
}

TEST_P(GroupContract, BytesOfAnyLength) {
  run([](auto group) {
    const auto value = [](int rank) { return std::string(std::size_t(rank * rank * 1000), char('a' + rank)); };
    for (int root = 0; root < group->size(); ++root)
      EXPECT_EQ(broadcast_bytes(*group, value(group->rank()), root), value(root));
    const std::vector<std::string> all = all_gather_bytes(*group, value(group->rank()));
    for (int rank = 0; rank < group->size(); ++rank) EXPECT_EQ(all[std::size_t(rank)], value(rank));
  });
}

}  // namespace
}  // namespace lockstep::comm
