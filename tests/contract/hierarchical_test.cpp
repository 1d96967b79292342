// Groups of two levels: what is particular to them.

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "lockstep/comm/network/hierarchical_group.h"
#include "lockstep/comm/point_to_point.h"
#include "tests/contract/group_contract.h"
#include "tests/support/tally.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;

void run_levels(const std::vector<int>& per_node, const support::RankBody& body, support::RankOptions options = {}) {
  options.group = hierarchical_group;
  support::run_nodes(per_node, body, options);
}

template <class Body>
Failure failure_in_levels(Body&& body) {
  try {
    body();
  } catch (const GroupAborted& aborted) {
    return aborted.failure();
  }
  ADD_FAILURE() << "nothing failed";
  return {};
}

at::Tensor sum_in_tree_order(int lo, int hi, const std::function<at::Tensor(int)>& tensor_of) {
  if (hi - lo == 1) return tensor_of(lo);
  int half = 1;
  while (half * 2 < hi - lo) half *= 2;
  return sum_in_tree_order(lo, lo + half, tensor_of) + sum_in_tree_order(lo + half, hi, tensor_of);
}

TEST(Hierarchical, IsMadeWhereANodeHasSeveralRanks) {
  const auto expect = [](const std::vector<int>& per_node, bool has_levels) {
    run_levels(per_node, [&](auto group) {
      EXPECT_EQ(dynamic_cast<HierarchicalGroup*>(group.get()) != nullptr, has_levels);
      EXPECT_NE(group->wire(), nullptr);
      EXPECT_NE(group->shared_node(), nullptr);
    });
  };
  expect({2, 1}, true);
  expect({1, 1}, false);
  expect({2}, false);
}

TEST(Hierarchical, APartHasLevelsWhereANodeHasSeveralOfItsRanks) {
  run_levels({3, 2}, [](auto group) {
    const auto has_levels = [&](const std::vector<int>& ranks) {
      const std::shared_ptr<Group> part = group->new_group(ranks);
      return part != nullptr && dynamic_cast<HierarchicalGroup*>(part.get()) != nullptr;
    };
    const int rank = group->rank();
    EXPECT_EQ(has_levels({0, 2, 4}), rank % 2 == 0);
    EXPECT_FALSE(has_levels({1, 3}));
    EXPECT_FALSE(has_levels({0, 1}));
  });
}

// Whatever the nodes have of the ranks, and whoever of a node has the share: the sums of one machine.
TEST(Hierarchical, HasTheBitsOfTheTreeOverAllRanks) {
  for (const std::vector<int>& per_node : {std::vector<int>{3, 1, 2}, {1, 4, 2}, {5, 1}})
    run_levels(per_node, [](auto group) {
      for (const std::int64_t elements : {1, 1000, 4096, 4097, 70'001}) {
        const auto value = [&](int rank) { return random_example(rank, elements); };
        const at::Tensor expected = sum_in_tree_order(0, group->size(), value);
        const at::Tensor tensor = value(group->rank());
        group->all_reduce(tensor);
        ASSERT_TRUE(torch::equal(tensor, expected)) << elements;
        const std::int64_t ranks = group->size();
        const auto input = [&](int rank) { return random_example(rank, elements * ranks); };
        const at::Tensor output = torch::empty({elements});
        group->reduce_scatter(output, input(group->rank()));
        const at::Tensor whole = sum_in_tree_order(0, group->size(), input);
        ASSERT_TRUE(torch::equal(output, whole.narrow(0, elements * group->rank(), elements))) << elements;
      }
    });
}

// What a node's ranks have in common crosses the network once.
TEST(Hierarchical, SendsAsOneRankOfEachNodeWould) {
  run_levels({2, 2}, [](auto group) {
    const auto sent_in = [&](const std::function<void()>& call) {
      const std::uint64_t before = group->wire()->bytes_sent();
      call();
      return group->wire()->bytes_sent() - before;
    };
    const int rank = group->rank();
    const bool leads = rank % 2 == 0;
    const std::uint64_t whole = 160'000;  // of a tensor
    const at::Tensor tensor = torch::ones({40'000}), few = torch::ones({10}), part = torch::ones({1000});
    // Half of the half that this rank has to do with to be added up, and the other half of it when it is.
    EXPECT_EQ(sent_in([&] { group->all_reduce(tensor); }), whole / 2);
    EXPECT_EQ(sent_in([&] { group->all_reduce(few); }), leads ? 40u : 0u);
    EXPECT_EQ(sent_in([&] { group->broadcast(tensor, 3); }), rank < 2 ? 0 : whole / 2);
    EXPECT_EQ(sent_in([&] { (void)group->all_gather(part); }), 4000u);
    EXPECT_EQ(sent_in([&] { group->reduce_scatter(part, torch::ones({4000})); }), 4000u);
    EXPECT_EQ(sent_in([&] { group->all_to_all(torch::empty({4000}), torch::ones({4000})); }), 8000u);
    EXPECT_EQ(sent_in([&] { group->barrier(); }), 0u);
  });
}

// bfloat16 of one rank travels as it is; of several it would be rounded twice.
TEST(Hierarchical, SendsSixteenBitsWhereTheyAreOfOneRank) {
  run_levels({2, 1}, [](auto group) {
    const at::Tensor few = torch::ones({100}, at::kBFloat16);
    const std::uint64_t before = group->wire()->bytes_sent();
    group->all_reduce(few);
    const std::uint64_t bytes[] = {400, 0, 200};
    EXPECT_EQ(group->wire()->bytes_sent() - before, bytes[group->rank()]);
  });
}

// Rank 1 waits for the one beside it, which computes.
TEST(Hierarchical, AFailureElsewhereEndsAWaitForALateRankOfTheNode) {
  const testing::Tally told;
  run_levels({1, 2}, [&](auto group) {
    if (group->rank() == 2) {
      EXPECT_TRUE(told.wait_for(1));  // until then
      return;
    }
    if (group->rank() == 0) {
      recv(*group, torch::ones({1}), 1);
      std::this_thread::sleep_for(100ms);
      group->abort("no more data");
      return;
    }
    send(*group, torch::ones({1}), 0);
    const Failure failure = failure_in_levels([&] { group->all_reduce(torch::ones({3})); });
    EXPECT_EQ(failure.rank, 0);
    EXPECT_EQ(failure.cause, "no more data");
    told.add();
  });
}

// Whoever waits, beside it or for a rank that waits for it.
TEST(Hierarchical, ARankThatStopsIsNamedOnAllNodes) {
  const auto named = [](std::int64_t elements) {
    run_levels({2, 2},
               [&](auto group) {
                 const std::vector<at::Tensor> processes = group->all_gather(torch::tensor({getpid()}));
                 if (group->rank() == 1) raise(SIGSTOP);
                 const Failure failure = failure_in_levels([&] { group->all_reduce(torch::ones({elements})); });
                 EXPECT_EQ(failure.rank, 1) << failure.to_string();
                 if (group->rank() == 0) kill(processes[1].template item<int>(), SIGKILL);
               },
               {.timeout = 2s, .allowed_signal = SIGKILL});
  };
  support::at_once({[=] { named(3); }, [=] { named(100'000); }});
}

// Rank 0 comes to the call so late that it has not waited for long when those of the other node have: they ask it.
TEST(Hierarchical, ARankThatStopsIsNamedWhereNodesComeFarApart) {
  const std::function<void(Group&)> calls[] = {
      [](Group& group) { group.all_reduce(torch::ones({3})); },
      // As in a step: a node's ranks meet before each speaks with one of the other node.
      [](Group& group) {
        const at::Tensor tensor = torch::ones({1});
        const int partner = (group.rank() + 2) % 4;
        if (group.rank() < 2) {
          group.node().member.barrier();
          send(group, tensor, partner);
        }
        recv(group, tensor, partner);
      }};
  std::vector<std::function<void()>> cells;
  for (const std::function<void(Group&)>& call : calls)
    cells.emplace_back([&call] {
      run_levels({2, 2},
                 [&](auto group) {
                   const std::vector<at::Tensor> processes = group->all_gather(torch::tensor({getpid()}));
                   if (group->rank() == 1) raise(SIGSTOP);
                   if (group->rank() == 0) std::this_thread::sleep_for(1500ms);
                   const Failure failure = failure_in_levels([&] { call(*group); });
                   EXPECT_EQ(failure.rank, 1) << failure.to_string();
                   if (group->rank() == 0) kill(processes[1].template item<int>(), SIGKILL);
                 },
                 {.timeout = 2s, .allowed_signal = SIGKILL});
    });
  support::at_once(cells);
}

// Each node agrees, and the nodes do not; or the ranks of a node disagree crosswise with those of the other.
TEST(Hierarchical, CallsThatDifferAreToldWhereverTheyMeet) {
  const std::function<void(Group&)> calls[] = {
      [](Group& group) { group.barrier(); },
      [](Group& group) { group.all_reduce(torch::ones({70'001})); },
      [](Group& group) { (void)group.all_gather(torch::ones({3})); },
      [](Group& group) { group.broadcast(torch::ones({70'001}), 3); },
      [](Group& group) { group.all_to_all(torch::empty({4}), torch::ones({4})); },
      [](Group& group) { group.reduce_scatter(torch::empty({5}), torch::ones({20})); }};
  const int numbers = int(std::size(calls));
  for (const bool crosswise : {false, true})
    for (int number = 0; number < numbers; ++number) {
      const testing::Tally told;
      run_levels({2, 2}, [&](auto group) {
        const int rank = group->rank();
        const bool other = crosswise ? rank == 0 || rank == 3 : rank < 2;
        const auto start = std::chrono::steady_clock::now();
        try {
          calls[other ? (number + 1) % numbers : number](*group);
          ADD_FAILURE() << "rank " << rank << " has ended what the others have not called";
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), ::testing::HasSubstr("ranks disagree: "));
        }
        EXPECT_LT(std::chrono::steady_clock::now() - start, 10s) << "told at the deadline";
        told.add();
        (void)told.wait_for(4, 200ms);  // who leaves at once takes away what the others have still to hear
      });
    }
}

// Two nodes would give each other nothing here.
TEST(Hierarchical, RootsThatDifferAreToldOnAllNodes) {
  for (const std::int64_t elements : {3, 70'001}) {
    const testing::Tally told;
    run_levels({2, 1, 1}, [&](auto group) {
      const auto start = std::chrono::steady_clock::now();
      try {
        group->broadcast(torch::ones({elements}), group->rank() == 3 ? 2 : 0);
        ADD_FAILURE() << "rank " << group->rank() << " has got what nobody has sent";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("ranks disagree: "));
      }
      EXPECT_LT(std::chrono::steady_clock::now() - start, 10s) << "told at the deadline";
      told.add();
      (void)told.wait_for(4, 200ms);
    });
  }
}

}  // namespace
}  // namespace lockstep::comm
