// Groups within a group of several nodes: what is particular to them.

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <numeric>
#include <thread>

#include "lockstep/comm/collectives.h"
#include "lockstep/comm/network/network_group.h"
#include "lockstep/comm/point_to_point.h"
#include "tests/contract/group_contract.h"
#include "tests/support/tally.h"
#include "tests/support/usage_error.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// In groups of messages between all ranks, and in those of two levels.
void run_nodes(const std::vector<int>& per_node, const support::RankBody& body, support::RankOptions options = {}) {
  for (const MakeGroup& make : {MakeGroup(flat_group), MakeGroup(hierarchical_group)}) {
    options.group = make;
    support::run_nodes(per_node, body, options);
  }
}

template <class Body>
Failure failure_of(Body&& body) {
  try {
    body();
  } catch (const GroupAborted& aborted) {
    return aborted.failure();
  }
  ADD_FAILURE() << "nothing failed";
  return {};
}

void expect_sums(Group& part, const std::vector<int>& ranks, int rank) {
  const at::Tensor tensor = torch::full({70'001}, float(rank));
  part.all_reduce(tensor);
  EXPECT_EQ(tensor[70'000].item<float>(), float(std::accumulate(ranks.begin(), ranks.end(), 0)));
  part.barrier();
}

TEST(GroupsOverNodes, TheTopologyOfSomeRanksHasNoGaps) {
  EXPECT_EQ(topology_of({0, 0, 0, 1}, 3), (Topology{3, 4, 1, 2, 0, 1}));
  EXPECT_EQ(topology_of({0, 2, 2, 5}, 2), (Topology{2, 4, 1, 3, 1, 2}));
  EXPECT_EQ(topology_of({7}, 0), Topology{});
}

TEST(GroupsOverNodes, APartKnowsWhereItsRanksAre) {
  const auto check = [](const std::vector<int>& per_node, const std::vector<int>& ranks,
                        const std::vector<Topology>& places) {
    run_nodes(per_node, [&](auto group) {
      const std::shared_ptr<Group> part = group->new_group(ranks);
      const auto mine = std::find(ranks.begin(), ranks.end(), group->rank());
      ASSERT_EQ(part == nullptr, mine == ranks.end());
      if (part == nullptr) return;
      EXPECT_EQ(part->topology(), places[std::size_t(mine - ranks.begin())]);
      EXPECT_EQ(part->node().member.rank(), part->topology().local_rank);
      EXPECT_EQ(part->wire() == nullptr, part->topology().nodes == 1);
      expect_sums(*part, ranks, group->rank());
    });
  };
  check({3, 1}, {1, 2, 3}, {{0, 3, 0, 2, 0, 2}, {1, 3, 0, 2, 1, 2}, {2, 3, 1, 2, 0, 1}});
  check({2, 2}, {0, 2, 3}, {{0, 3, 0, 2, 0, 1}, {1, 3, 1, 2, 0, 2}, {2, 3, 1, 2, 1, 2}});
  check({1, 1, 2}, {0, 3}, {{0, 2, 0, 2, 0, 1}, {1, 2, 1, 2, 0, 1}});
  check({2, 2}, {2, 3}, {on_one_node(0, 2), on_one_node(1, 2)});
  check({3, 1}, {3}, {Topology{}});
}

TEST(GroupsOverNodes, APartOfOneNodeSharesItsMemory) {
  run_nodes({1, 3}, [](auto group) {
    const std::shared_ptr<Group> part = group->new_group({1, 3});
    if (part == nullptr) return;
    const at::Tensor shared = part->shared_empty({70'001});
    shared.fill_(float(group->rank()));
    part->all_reduce(shared);
    EXPECT_EQ(shared[7].template item<float>(), 4);
    try {
      part->all_reduce(torch::ones({group->rank()}));
      ADD_FAILURE() << "different sizes were reduced";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1 calls all_reduce(1 x Float"));
      EXPECT_THAT(error.what(), HasSubstr("rank 3 calls all_reduce(3 x Float"));
    }
  });
}

TEST(GroupsOverNodes, APartOfAPartNamesRanksAsTheWorldDoes) {
  run_nodes({2, 2}, [](auto group) {
    const std::shared_ptr<Group> part = group->new_group({1, 2, 3});
    if (part == nullptr) return;
    const std::shared_ptr<Group> inner = part->new_group({0, 2});
    if (inner == nullptr) return;
    const int rank = group->rank();
    expect_sums(*inner, {1, 3}, rank);
    if (rank == 3) return;
    const Failure failure = failure_of([&] { inner->barrier(); });
    EXPECT_EQ(failure.rank, 3);
    EXPECT_THAT(failure.cause, HasSubstr("left the group while rank 1 waited for it"));
  });
}

// Those who fail come to no collective of the world, and do not end.
TEST(GroupsOverNodes, AFailureInAPartEndsTheWorldOnAllNodes) {
  for (const std::vector<int>& ranks : {std::vector<int>{1, 3}, {2, 3}})
    for (const MakeGroup& make : {MakeGroup(flat_group), MakeGroup(hierarchical_group)}) {
      const testing::Tally told;
      const auto body = [&](auto group) {
        const std::shared_ptr<Group> part = group->new_group(ranks);
        const int rank = group->rank();
        const Failure failure = failure_of([&] {
          if (rank == 3) {
            std::this_thread::sleep_for(100ms);
            EXPECT_TRUE(part->abort("no more data"));
            recv(*part, torch::ones({1}), 0);
          } else {
            group->barrier();
          }
        });
        EXPECT_EQ(failure.rank, 3);
        EXPECT_EQ(failure.cause, "no more data");
        told.add();
        if (rank == 3) {
          EXPECT_TRUE(told.wait_for(4));
        }
      };
      support::run_nodes({2, 2}, body, {.group = make});
    }
}

TEST(GroupsOverNodes, AFailureElsewhereEndsAWaitWithinANode) {
  for (const MakeGroup& make : {MakeGroup(flat_group), MakeGroup(hierarchical_group)}) {
    const testing::Tally told;
    const auto body = [&](auto group) {
      const std::shared_ptr<Group> part = group->new_group({0, 1});
      const int rank = group->rank();
      if (rank == 1) {
        EXPECT_TRUE(told.wait_for(1));  // computes until then
        return;
      }
      if (rank == 2) {
        recv(*group, torch::ones({1}), 0);
        group->abort("no more data");
        return;
      }
      send(*group, torch::ones({1}), 2);
      const Failure failure = failure_of([&] { part->barrier(); });
      EXPECT_EQ(failure.rank, 2);
      EXPECT_EQ(failure.cause, "no more data");
      told.add();
    };
    support::run_nodes({2, 1}, body, {.group = make});
  }
}

TEST(GroupsOverNodes, DifferentListsAreRefusedByAll) {
  run_nodes({2, 1}, [](auto group) {
    const std::vector<int> mine = group->rank() == 2 ? std::vector<int>{1, 2} : std::vector<int>{0, 1};
    EXPECT_THAT(testing::usage_error([&] { (void)group->new_group(mine); }),
                HasSubstr("rank 0 asks for the ranks 0, 1, rank 2 for 1, 2"));
    const std::shared_ptr<Group> all = duplicate(*group);  // is as good as before
    expect_sums(*all, {0, 1, 2}, group->rank());
  });
}

// At whatever moment of it.
TEST(GroupsOverNodes, ARankThatDiesWhileAPartIsMadeIsNamed) {
  for (const int victim : {0, 1, 2})
    for (int moment = 0; moment < 8; ++moment)
      run_nodes({2, 1},
                [&](auto group) {
                  if (group->rank() == victim)
                    std::thread([moment] {
                      std::this_thread::sleep_for(moment * 1700us);
                      raise(SIGKILL);
                    }).detach();
                  const auto start = std::chrono::steady_clock::now();
                  const Failure failure = failure_of([&] {
                    for (;;) (void)duplicate(*group);
                  });
                  EXPECT_EQ(failure.rank, victim) << failure.to_string();
                  EXPECT_LT(std::chrono::steady_clock::now() - start, 15s);
                },
                {.timeout = 10s, .allowed_signal = SIGKILL});
}

// Whoever asks for a network gets it, in what is made of the group too.
TEST(GroupsOverNodes, OnOneNodeThatAskedForANetworkAPartHasOne) {
  run_nodes({2}, [](auto group) {
    ASSERT_NE(group->wire(), nullptr);
    const std::shared_ptr<Group> all = group->new_group({0, 1});
    EXPECT_NE(all->wire(), nullptr);
    const at::Tensor sum = torch::ones({3});
    all->all_reduce(sum);
    EXPECT_TRUE(sum.equal(torch::full({3}, 2)));
  });
}

// Stops the process, which does not end, before the send of a number.
class HaltingStreams final : public Streams {
 public:
  static inline int sends_left = -1;  // none but those armed stop

  explicit HaltingStreams(std::unique_ptr<Streams> streams) : streams_(std::move(streams)) {}
  Moved send(int peer, std::span<const iovec> pieces) override {
    if (sends_left >= 0 && sends_left-- == 0) raise(SIGSTOP);
    return streams_->send(peer, pieces);
  }
  Moved receive(int peer, std::span<const iovec> pieces) override { return streams_->receive(peer, pieces); }
  Sent sent(int peer) override { return streams_->sent(peer); }
  int polled(int peer) const override { return streams_->polled(peer); }
  std::chrono::nanoseconds nap(std::chrono::nanoseconds idle) const override { return streams_->nap(idle); }
  bool end_with_news() const override { return streams_->end_with_news(); }
  std::unique_ptr<Streams> part(Mesh& mesh, std::int64_t highest) override { return streams_->part(mesh, highest); }

 private:
  const std::unique_ptr<Streams> streams_;
};

// What the victim does that stops before so many sends more, each rank of two nodes calls until it fails.
template <class Call>
void expect_named_when_stopped(const MakeGroup& make, int victim, int sends, Call&& call) {
  const auto streams = [](Mesh& mesh) { return std::make_unique<HaltingStreams>(tcp_streams(mesh)); };
  support::run_nodes({2, 1},
                     [&](auto group) {
                       const std::vector<at::Tensor> processes = group->all_gather(torch::tensor({getpid()}));
                       if (group->rank() == victim) HaltingStreams::sends_left = sends;
                       const Failure failure = failure_of([&] {
                         for (;;) call(*group);
                       });
                       EXPECT_EQ(failure.rank, victim) << failure.to_string();
                       if (group->rank() == 0) kill(processes[std::size_t(victim)].template item<int>(), SIGKILL);
                     },
                     {.timeout = 2s, .allowed_signal = SIGKILL, .streams = streams, .group = make});
}

// Before one of the six messages in which the ranks agree on a list, say where they listen and that all are connected.
// What it has told one rank and not the other must not make a suspect of either.
TEST(GroupsOverNodes, ARankThatIsLateWhileAPartIsMadeIsNamed) {
  const auto call = [](Group& group) { (void)duplicate(group); };
  std::vector<std::function<void()>> cells;
  for (int sends = 0; sends < 6; ++sends)
    cells.emplace_back([=] { expect_named_when_stopped(flat_group, 2, sends, call); });
  // In two levels it agrees by one message.
  for (const int sends : {0, 2})
    cells.emplace_back([=] { expect_named_when_stopped(hierarchical_group, 2, sends, call); });
  support::at_once(cells);
}

TEST(GroupsOverNodes, ARankThatIsLateForOneOfTwoIsNamedByBoth) {
  const auto call = [](Group& group) { group.all_reduce(torch::ones({3})); };
  support::at_once({[=] { expect_named_when_stopped(flat_group, 2, 0, call); },
                    [=] { expect_named_when_stopped(flat_group, 2, 1, call); },
                    [=] { expect_named_when_stopped(hierarchical_group, 2, 1, call); }});
}

// Rank 0 has what it needs to add up its part, and waits for that of rank 2, who lacks what rank 1 has.
TEST(GroupsOverNodes, ARankThatIsLateForTheOnlyOneOfItsNodeIsNamedByAll) {
  expect_named_when_stopped(hierarchical_group, 1, 0, [](Group& group) { group.all_reduce(torch::ones({100'000})); });
}

// On each node the ranks meet before each speaks with one of the other node, as in a training step: who waits abroad
// for a healthy rank leaves the word to those who know whom that one waits for.
TEST(GroupsOverNodes, ARankThatIsLateOnItsNodeIsNamedAbroad) {
  const auto named = [](const MakeGroup& make) {
    support::run_nodes({2, 2},
                       [](auto group) {
                         const std::vector<at::Tensor> processes = group->all_gather(torch::tensor({getpid()}));
                         const int rank = group->rank(), partner = (rank + 2) % 4;
                         if (rank == 1) raise(SIGSTOP);
                         const at::Tensor tensor = torch::ones({1});
                         const Failure failure = failure_of([&] {
                           group->node().member.barrier();
                           if (rank < 2) send(*group, tensor, partner);
                           recv(*group, tensor, partner);
                         });
                         EXPECT_EQ(failure.rank, 1) << failure.to_string();
                         if (rank == 0) kill(processes[1].template item<int>(), SIGKILL);
                       },
                       {.timeout = 2s, .allowed_signal = SIGKILL, .group = make});
  };
  support::at_once({[=] { named(flat_group); }, [=] { named(hierarchical_group); }});
}

}  // namespace
}  // namespace lockstep::comm
