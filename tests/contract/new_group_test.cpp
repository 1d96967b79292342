// Groups within a group.

#include <gmock/gmock.h>

#include <thread>

#include "lockstep/comm/collectives.h"
#include "lockstep/comm/point_to_point.h"
#include "tests/contract/group_contract.h"
#include "tests/support/usage_error.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Every second rank, from 0.
std::vector<int> even_ranks(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; rank += 2) ranks.push_back(rank);
  return ranks;
}

TEST_P(GroupContract, APartCountsItsOwnRanks) {
  run([](auto group) {
    const std::vector<int> ranks = even_ranks(group->size());
    const std::shared_ptr<Group> part = group->new_group(ranks);
    ASSERT_EQ(part != nullptr, group->rank() % 2 == 0);
    if (part) {
      EXPECT_EQ(part->rank(), group->rank() / 2);
      EXPECT_EQ(part->size(), int(ranks.size()));
      const at::Tensor tensor = torch::full({70'001}, float(group->rank()));
      part->all_reduce(tensor);
      EXPECT_EQ(tensor[70'000].template item<float>(), float(std::accumulate(ranks.begin(), ranks.end(), 0)));
      const at::Tensor shared = part->shared_empty({70'001});
      shared.fill_(float(part->rank()));
      part->broadcast(shared, part->size() - 1);
      EXPECT_EQ(shared[7].template item<float>(), float(part->size() - 1));
    }
    // Both at once, and one within the other.
    const std::shared_ptr<Group> all = duplicate(*group);
    const std::shared_ptr<Group> inner = duplicate(*all);
    for (const auto& each : {group, all, inner}) {
      const at::Tensor one = torch::ones({3});
      each->all_reduce(one);
      EXPECT_EQ(one[0].template item<float>(), float(group->size()));
    }
  });
}

TEST_P(GroupContract, APartOutlivesTheWhole) {
  run([](auto group) {
    const std::shared_ptr<Group> part = duplicate(*group);
    const int ranks = group->size();
    group->barrier();
    group.reset();
    const at::Tensor one = torch::ones({3});
    part->all_reduce(one);
    EXPECT_EQ(one[0].template item<float>(), float(ranks));
  });
}

TEST_P(GroupContract, PartsOfRanksThatAreNoneAreRefused) {
  run([](auto group) {
    const int ranks = group->size();
    for (const std::vector<int>& wrong : {std::vector<int>{}, {ranks}, {-1}, {0, 0}})
      EXPECT_THROW((void)group->new_group(wrong), UsageError);
    if (ranks > 1) {
      EXPECT_THROW((void)group->new_group({1, 0}), UsageError);
      const std::vector<int> mine = group->rank() == 1 ? std::vector<int>{1} : std::vector<int>{0, 1};
      EXPECT_THAT(testing::usage_error([&] { (void)group->new_group(mine); }),
                  HasSubstr("rank 0 asks for the ranks 0, 1, rank 1 for 1"));
    }
    group->barrier();  // is as good as before
  });
}

TEST_P(GroupContract, AFailureInAPartIsOneOfTheWhole) {
  if (GetParam().ranks < 3) return;
  run([this](auto group) {
    const std::shared_ptr<Group> part = duplicate(*group)->new_group({1, 2});
    this->let_all_arrive(*group, group->rank() == 2);
    if (group->rank() == 2) {
      EXPECT_TRUE(part->abort("no more data"));
    }
    try {
      for (int i = 0; i < 2; ++i) (group->rank() == 1 ? *part : *group).barrier();
      ADD_FAILURE() << "rank " << group->rank() << " passed";
    } catch (const GroupAborted& error) {
      EXPECT_EQ(error.failure().cause, "no more data");
      EXPECT_EQ(error.failure().rank, 2) << "as the world calls it";
    }
    const bool first = group->node().member.first_to_fail();  // the one to say so, for its node
    if (group->rank() == 2 || !is_over_network()) {
      EXPECT_EQ(first, group->rank() == 2);
    }
  });
}

TEST_P(GroupContract, AFailureOfTheWholeEndsTheWaitsOfItsParts) {
  if (GetParam().ranks < 3) return;
  run([](auto group) {
    const std::shared_ptr<Group> part = group->new_group({0, 1});
    const int rank = group->rank();
    const at::Tensor one = torch::ones({1});
    if (rank == 2) {  // without a part in what rank 0 waits for
      for (const int peer : {0, 1}) recv(*group, one, peer);
      std::this_thread::sleep_for(50ms);
      group->abort("no more data");
    }
    if (rank > 1) return;
    try {
      send(*group, one, 2);
      if (rank == 0) part->barrier();
      recv(*group, one, 2);
      ADD_FAILURE() << "rank " << rank << " was not to go on";
    } catch (const GroupAborted& error) {
      EXPECT_EQ(error.failure().cause, "no more data");
    }
  });
}

TEST_P(GroupContract, PartsNameRanksAsTheWholeDoes) {
  if (GetParam().ranks < 3) return;
  run([](auto group) {
    const std::shared_ptr<Group> part = group->new_group({0, 2});
    if (!part) return;
    try {
      part->all_reduce(torch::ones({group->rank() == 2 ? 4 : 5}));
      ADD_FAILURE() << "different sizes were reduced";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 2 calls all_reduce(4 x Float"));
      EXPECT_THAT(error.what(), HasSubstr("rank 0 calls all_reduce(5 x Float"));
    }
  });
}

TEST_P(GroupContract, ARankThatIsGoneFromAPartIsNamedAsTheWholeDoes) {
  if (GetParam().ranks < 3) return;
  run([](auto group) {
    std::shared_ptr<Group> part = group->new_group({0, 2});
    if (group->rank() == 2) part.reset();
    if (group->rank() != 0) return;
    try {
      part->barrier();
      ADD_FAILURE() << "rank 2 had left";
    } catch (const GroupAborted& error) {
      EXPECT_EQ(error.failure().rank, 2) << error.what();
    }
  });
}

}  // namespace
}  // namespace lockstep::comm
