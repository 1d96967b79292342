// Groups by color and key.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "lockstep/comm/point_to_point.h"
#include "tests/contract/group_contract.h"

namespace lockstep::comm {
namespace {

// The ranks of `group`, by their numbers in the part.
std::vector<int> ranks_in(Group& part, int rank) {
  std::vector<int> ranks;
  for (const at::Tensor& theirs : part.all_gather(torch::tensor({rank}))) ranks.push_back(theirs.item<int>());
  return ranks;
}

TEST_P(GroupContract, SplitMakesAGroupOfEachColor) {
  run([](auto group) {
    const int rank = group->rank();
    const std::shared_ptr<Group> part = group->split(rank % 2);
    std::vector<int> wanted;
    for (int each = rank % 2; each < group->size(); each += 2) wanted.push_back(each);
    EXPECT_EQ(part->size(), int(wanted.size()));
    EXPECT_EQ(part->rank(), rank / 2);
    EXPECT_EQ(ranks_in(*part, rank), wanted);
    const at::Tensor sum = torch::full({70'001}, float(rank));
    part->all_reduce(sum);
    EXPECT_EQ(sum[7].template item<float>(), float(std::accumulate(wanted.begin(), wanted.end(), 0)));
    EXPECT_NE(part->shared_node(), nullptr) << "in the order of the ranks it is a group like any";
  });
}

TEST_P(GroupContract, SplitLeavesOutWhoHasNoColor) {
  run([](auto group) {
    const int rank = group->rank();
    const std::shared_ptr<Group> part = group->split(rank == 0       ? std::optional<int>(7)
                                                     : rank % 2 == 0 ? std::optional<int>(-1)
                                                                     : std::nullopt);
    EXPECT_EQ(part != nullptr, rank == 0);
    if (part) {
      EXPECT_EQ(part->size(), 1);
    }
    EXPECT_EQ(group->split(std::nullopt), nullptr) << "nobody has one";
    group->barrier();
  });
}

// The ranks the other way round: every collective counts them by their new numbers.
TEST_P(GroupContract, SplitNumbersRanksByTheirKeys) {
  run([](auto group) {
    const int rank = group->rank(), ranks = group->size();
    const std::shared_ptr<Group> part = group->split(0, -rank);
    const int mine = ranks - 1 - rank;
    EXPECT_EQ(part->rank(), mine);
    std::vector<int> wanted(std::size_t(ranks), 0);
    std::iota(wanted.rbegin(), wanted.rend(), 0);
    EXPECT_EQ(ranks_in(*part, rank), wanted);
    for (const std::int64_t n : {1, 70'001}) {
      at::Tensor tensor = torch::full({n}, mine);
      part->broadcast(tensor, ranks - 1);
      EXPECT_TRUE(tensor.equal(torch::full({n}, ranks - 1)));
      const at::Tensor input = torch::arange(ranks).repeat_interleave(n) + mine * 100;  // for each rank a part
      at::Tensor output = torch::empty({n}, torch::kLong);
      part->reduce_scatter(output, input, ReduceOp::max);
      EXPECT_TRUE(output.equal(torch::full({n}, mine + (ranks - 1) * 100)));
      output = torch::empty({ranks * n}, torch::kLong);
      part->all_to_all(output, input);
      EXPECT_TRUE(output.equal((torch::arange(ranks) * 100 + mine).repeat_interleave(n)));
      part->all_gather_into_tensor(output, torch::full({n}, mine, torch::kLong));
      EXPECT_TRUE(output.equal(torch::arange(ranks).repeat_interleave(n)));
      part->all_reduce(tensor);
      EXPECT_TRUE(tensor.equal(torch::full({n}, (ranks - 1) * ranks)));
    }
  });
}

TEST_P(GroupContract, SplitByKeySendsToItsOwnNumbers) {
  run([](auto group) {
    const std::shared_ptr<Group> part = group->split(0, -group->rank());
    const int mine = part->rank(), ranks = part->size();
    if (ranks == 1) return;
    const at::Tensor sent = torch::tensor({mine}), got = torch::tensor({-1});
    batch_isend_irecv(*part, {{Way::send, sent, (mine + 1) % ranks}, {Way::recv, got, (mine + ranks - 1) % ranks}});
    EXPECT_EQ(got.item<int>(), (mine + ranks - 1) % ranks);
  });
}

TEST_P(GroupContract, APartOfASplitKeepsItsOrder) {
  if (GetParam().ranks < 3) return;
  run([](auto group) {
    const int rank = group->rank(), ranks = group->size();
    const std::shared_ptr<Group> turned = group->split(0, -rank);
    const std::shared_ptr<Group> part = turned->new_group({0, 2});  // the last and the last but two
    ASSERT_EQ(part != nullptr, rank == ranks - 1 || rank == ranks - 3);
    if (part) {
      EXPECT_EQ(ranks_in(*part, rank), (std::vector<int>{ranks - 1, ranks - 3}));
    }
    // Turned once more, and so as at first.
    const std::shared_ptr<Group> back = turned->split(0, rank);
    EXPECT_EQ(back->rank(), rank);
    EXPECT_EQ(ranks_in(*back, rank)[0], 0);
    // Of equal keys the order stays.
    const std::shared_ptr<Group> first = group->split(3, rank == ranks - 1 ? 0 : 1);
    std::vector<int> wanted = {ranks - 1};
    for (int each = 0; each < ranks - 1; ++each) wanted.push_back(each);
    EXPECT_EQ(ranks_in(*first, rank), wanted);
  });
}

TEST_P(GroupContract, AFailureInASplitIsOneOfTheWhole) {
  if (GetParam().ranks < 2) return;
  run([this](auto group) {
    const std::shared_ptr<Group> part = group->split(0, -group->rank());
    this->let_all_arrive(*group, group->rank() == 1);
    if (group->rank() == 1) part->abort("no more data");
    try {
      for (int i = 0; i < 2; ++i) (group->rank() == 0 ? *group : *part).barrier();
      ADD_FAILURE() << "rank " << group->rank() << " passed";
    } catch (const GroupAborted& error) {
      EXPECT_EQ(error.failure().cause, "no more data");
      EXPECT_EQ(error.failure().rank, 1) << "as the world calls it";
    }
  });
}

}  // namespace
}  // namespace lockstep::comm
