// What every Group must do, whatever it is made of.

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/contract/group_contract.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;

// A program that mpirun has started for that (tests/multiprocess/mpi_test.cpp) is one rank of one world.
std::vector<Ranks> worlds() {
  if (const char* const ranks = std::getenv("LOCKSTEP_TEST_MPI_RANKS")) return {{RankKind::mpi, std::atoi(ranks)}};
  return {Ranks{RankKind::single, 1},
          Ranks{RankKind::threads, 1},
          Ranks{RankKind::threads, 2},
          Ranks{RankKind::threads, 3},
          Ranks{RankKind::threads, 7},
          Ranks{RankKind::threads, 8},
          Ranks{RankKind::wrapped, 3},
          Ranks{RankKind::processes, 1},
          Ranks{RankKind::processes, 2},
          Ranks{RankKind::processes, 3},
          Ranks{RankKind::processes, 4},
          Ranks{RankKind::processes, 5},
          Ranks{RankKind::processes, 6},
          Ranks{RankKind::processes, 8},
          Ranks{RankKind::nodes, 2},
          Ranks{RankKind::nodes, 3},
          Ranks{RankKind::nodes, 4},
          Ranks{RankKind::nodes, 3, {2, 1}},
          Ranks{RankKind::nodes, 4, {2, 2}},
          Ranks{RankKind::nodes, 4, {3, 1}},
          Ranks{RankKind::nodes, 5},
          Ranks{RankKind::nodes, 8, {3, 5}},
          Ranks{RankKind::hierarchical, 3, {2, 1}},
          Ranks{RankKind::hierarchical, 4, {2, 2}},
          Ranks{RankKind::hierarchical, 4, {3, 1}},
          Ranks{RankKind::hierarchical, 4, {1, 2, 1}},
          Ranks{RankKind::hierarchical, 8, {3, 5}},
          Ranks{RankKind::gloo, 2},
          Ranks{RankKind::gloo, 3},
          Ranks{RankKind::gloo, 3, {2, 1}},
          Ranks{RankKind::c10d, 2}};
}

INSTANTIATE_TEST_SUITE_P(Worlds, GroupContract, ::testing::ValuesIn(worlds()),
                         [](const ::testing::TestParamInfo<Ranks>& info) {
                           std::string name = support::to_string(info.param.kind);
                           if (info.param.per_node.empty()) return name + std::to_string(info.param.ranks);
                           for (const int ranks : info.param.per_node) name += "_" + std::to_string(ranks);
                           return name;
                         });

// Empty, one, what travels in one cache line and a little more, odd, one chunk exactly, and over several chunks with a
// rest.
const std::int64_t kSizes[] = {0, 1, 7, 10, 11, 1000, 65536, 200'003};

TEST_P(GroupContract, KnowsRankAndSize) {
  run([&](auto group) {
    EXPECT_EQ(group->size(), GetParam().ranks);
    EXPECT_GE(group->rank(), 0);
    EXPECT_LT(group->rank(), group->size());
    if (!is_over_network()) {
      EXPECT_EQ(group->topology(), on_one_node(group->rank(), group->size()));
    } else {
      std::vector<int> per_node = GetParam().per_node;
      if (per_node.empty()) per_node.assign(std::size_t(GetParam().ranks), 1);
      int node = 0, first = 0;
      while (group->rank() >= first + per_node[std::size_t(node)]) first += per_node[std::size_t(node++)];
      EXPECT_EQ(group->topology(), (Topology{group->rank(), group->size(), node, int(per_node.size()),
                                             group->rank() - first, per_node[std::size_t(node)]}));
    }
    EXPECT_EQ(group->topology().local_rank, group->node().member.rank()) << "the seat";
  });
}

TEST_P(GroupContract, AllReduceCombinesAsTorchDoes) {
  run([](auto group) {
    for (ReduceOp op : kOps)
      for (at::ScalarType dtype : kDtypes)
        for (std::int64_t size : {0, 1, 10, 41, 1000}) {
          // Small enough to be exact in 16 bits, but for integers' products, which wrap as torch's do.
          const auto value = [&](int rank) {
            const at::Tensor all = example(rank, size, dtype);
            return op == ReduceOp::product && at::isFloatingType(dtype) ? all.clamp_max(rank < 3 ? 4 : 1) : all;
          };
          const at::Tensor tensor = value(group->rank());
          group->all_reduce(tensor, op);
          ASSERT_TRUE(torch::equal(tensor, combine_all(op, group->size(), value)))
              << dtype << " x " << size << ", op " << int(op);
        }
  });
}

TEST_P(GroupContract, AllReduceSums) {
  run([](auto group) {
    for (at::ScalarType dtype : kDtypes)
      for (std::int64_t size : kSizes) {
        const at::Tensor tensor = example(group->rank(), size, dtype);
        at::Tensor expected = torch::zeros({size}, dtype);
        for (int rank = 0; rank < group->size(); ++rank) expected += example(rank, size, dtype);
        group->all_reduce(tensor);
        ASSERT_TRUE(torch::equal(tensor, expected)) << dtype << " x " << size;
      }
  });
}

TEST_P(GroupContract, MinAndMaxKeepNaN) {
  run([](auto group) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
      for (ReduceOp op : {ReduceOp::min, ReduceOp::max})
        for (int who = 0; who < group->size(); ++who) {
          const at::Tensor tensor = torch::ones({40}, dtype);
          if (group->rank() == who) tensor[33] = nan;
          group->all_reduce(tensor, op);
          ASSERT_TRUE(tensor.isnan()[33].template item<bool>()) << dtype << ", rank " << who;
          ASSERT_EQ(tensor.isnan().sum().template item<int>(), 1);
        }
  });
}

TEST_P(GroupContract, SixteenBitsAreRoundedOnce) {
  run([](auto group) {
    for (at::ScalarType dtype : {at::kBFloat16, at::kHalf})
      for (const std::int64_t size : {501, 20'001}) {
        const auto value = [&](int rank) { return random_example(rank, size).to(dtype); };
        const std::function<at::Tensor(int, int)> tree = [&](int lo, int hi) -> at::Tensor {
          if (hi - lo == 1) return value(lo).to(torch::kFloat);
          int half = 1;
          while (half * 2 < hi - lo) half *= 2;
          return tree(lo, lo + half) + tree(lo + half, hi);
        };
        const at::Tensor tensor = value(group->rank());
        group->all_reduce(tensor);
        ASSERT_TRUE(torch::equal(tensor, tree(0, group->size()).to(dtype))) << dtype << " x " << size;
      }
  });
}

TEST_P(GroupContract, AllReduceMeans) {
  run([](auto group) {
    for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const at::Tensor tensor = example(group->rank(), 1001, dtype);
      at::Tensor expected = torch::zeros({1001}, torch::kDouble);
      for (int rank = 0; rank < group->size(); ++rank) expected += example(rank, 1001, torch::kDouble);
      expected /= group->size();
      group->all_reduce(tensor, ReduceOp::mean);
      ASSERT_TRUE(torch::allclose(tensor.to(torch::kDouble), expected, dtype == at::kBFloat16 ? 1e-2 : 1e-6));
    }
    for (at::ScalarType dtype : {at::kLong, at::kInt, at::kChar, at::kByte, at::kBool})
      EXPECT_THROW(group->all_reduce(torch::zeros({3}, dtype), ReduceOp::mean), UsageError);
  });
}

TEST_P(GroupContract, ReduceScatterGivesEachItsPart) {
  run([](auto group) {
    const int ranks = group->size();
    for (at::ScalarType dtype : kDtypes)
      for (std::int64_t size : {0, 1, 5, 1001, 70'001}) {
        const auto value = [&](int rank) { return example(rank, size * ranks, dtype); };
        const at::Tensor expected = combine_all(ReduceOp::max, ranks, value).narrow(0, size * group->rank(), size);
        const at::Tensor output = torch::zeros({size}, dtype);
        group->reduce_scatter(output, value(group->rank()), ReduceOp::max);
        ASSERT_TRUE(torch::equal(output, expected)) << dtype << " x " << size;
      }
  });
}

TEST_P(GroupContract, ReduceScatterHasTheBitsOfAllReduce) {
  run([](auto group) {
    for (const bool shared : {false, true}) {
      const std::int64_t size = 4321;
      const at::Tensor input =
          shared ? group->shared_empty({size * group->size()}) : torch::empty({size * group->size()});
      input.copy_(random_example(group->rank(), input.numel()));
      const at::Tensor whole = input.clone();
      group->all_reduce(whole, ReduceOp::mean);
      const at::Tensor mine = input.narrow(0, size * group->rank(), size);  // in place
      group->reduce_scatter(mine, input, ReduceOp::mean);
      ASSERT_TRUE(torch::equal(mine, whole.narrow(0, size * group->rank(), size)));
      const at::Tensor columns = torch::zeros({2, size}).t();
      if (group->size() == 2) {
        group->reduce_scatter(columns.select(1, 1), whole, ReduceOp::max);
        ASSERT_TRUE(torch::equal(columns.select(1, 1), whole.narrow(0, size * group->rank(), size)));
      }
    }
    EXPECT_THROW(group->reduce_scatter(torch::zeros({2}), torch::zeros({2 * group->size() + 1})), UsageError);
    EXPECT_THROW(group->reduce_scatter(torch::zeros({2}), torch::zeros({2 * group->size()}, torch::kLong)), UsageError);
  });
}

TEST_P(GroupContract, NonContiguousTensorsWork) {
  run([](auto group) {
    const at::Tensor base = torch::zeros({33, 20}) + group->rank();
    const at::Tensor columns = base.slice(1, 3, 17, 2).t();
    group->all_reduce(columns);
    const float sum = float(group->size() * (group->size() - 1)) / 2;
    EXPECT_TRUE(torch::equal(columns, torch::full_like(columns, sum)));
    EXPECT_TRUE(torch::equal(base.select(1, 4), torch::full({33}, float(group->rank()))));

    const at::Tensor from_last = base.slice(1, 4, 17, 2);
    group->broadcast(from_last, group->size() - 1);
    EXPECT_TRUE(torch::equal(from_last, torch::full_like(from_last, float(group->size() - 1))));

    const auto gathered = group->all_gather(base.slice(1, 2, 19, 6).add(0).t());
    for (int rank = 0; rank < group->size(); ++rank)
      EXPECT_EQ(gathered[std::size_t(rank)].sizes(), (std::vector<std::int64_t>{3, 33}));
  });
}

TEST_P(GroupContract, BroadcastFromEveryRoot) {
  run([](auto group) {
    for (at::ScalarType dtype : kDtypes)
      for (std::int64_t size : kSizes)
        for (int root = 0; root < group->size(); root += 2) {
          const at::Tensor tensor = example(group->rank(), size, dtype);
          group->broadcast(tensor, root);
          ASSERT_TRUE(torch::equal(tensor, example(root, size, dtype)));
        }
    EXPECT_THROW(group->broadcast(torch::zeros({1}), group->size()), UsageError);
    EXPECT_THROW(group->broadcast(torch::zeros({1}), -1), UsageError);
  });
}

TEST_P(GroupContract, AllGatherByRank) {
  run([](auto group) {
    for (at::ScalarType dtype : {at::kFloat, at::kLong, at::kBool, at::kByte})
      for (std::int64_t size : kSizes) {
        const auto gathered = group->all_gather(example(group->rank(), size, dtype));
        ASSERT_EQ(int(gathered.size()), group->size());
        for (int rank = 0; rank < group->size(); ++rank)
          ASSERT_TRUE(torch::equal(gathered[std::size_t(rank)], example(rank, size, dtype)));
      }
  });
}

TEST_P(GroupContract, RefusesWhatItCannotReduce) {
  run([](auto group) {
    EXPECT_THROW(group->all_reduce(torch::zeros({2}, torch::kComplexFloat)), UsageError);
    EXPECT_THROW(group->all_reduce(at::Tensor()), UsageError);
    group->barrier();
  });
}

TEST_P(GroupContract, WaitsForALateRank) {
  run([](auto group) {
    if (group->rank() == group->size() - 1) std::this_thread::sleep_for(100ms);
    const at::Tensor one = torch::ones({3});
    group->all_reduce(one);
    EXPECT_EQ(one[0].template item<float>(), float(group->size()));
  });
}

TEST_P(GroupContract, ALateRankBeyondTheTimeoutIsNamed) {
  if (GetParam().ranks == 1) return;
  const testing::Tally given_up;
  run(
      [&](auto group) {
        group->barrier();
        if (group->rank() == 0) {
          // Late until the others have given up: who computes hears no news. Under mpirun they share no memory.
          if (GetParam().kind == RankKind::mpi)
            std::this_thread::sleep_for(2s);
          else
            EXPECT_TRUE(given_up.wait_for(group->size() - 1));
          EXPECT_THROW(group->barrier(), GroupAborted);
          return;
        }
        try {
          group->barrier();
          ADD_FAILURE() << "did not wait";
        } catch (const GroupAborted& error) {
          EXPECT_NE(std::string(error.what()).find("waited 1000 ms for rank 0"), std::string::npos) << error.what();
          EXPECT_EQ(error.failure().rank, 0) << error.what();
        }
        given_up.add();
      },
      {.timeout = 1000ms});  // it counts for joining, too, and forking eight sanitized processes takes its time
}

TEST_P(GroupContract, ARankThatIsGoneAbortsAllOthers) {
  if (GetParam().ranks == 1) return;
  lose_rank_one([](Group&) { return torch::ones({300'000}); },
                [](Group& group, const at::Tensor& tensor) {
                  EXPECT_THROW(group.barrier(), GroupAborted);
                  EXPECT_THROW(group.broadcast(tensor), GroupAborted);
                  EXPECT_THROW(group.all_gather(tensor), GroupAborted);
                });
}

TEST_P(GroupContract, AbortTellsEveryoneTheCause) {
  run([](auto group) {
    // Between nodes the news may come before what another rank owes this one.
    if (!is_over_network()) group->barrier();
    if (group->rank() == 0) {
      EXPECT_TRUE(group->abort("no more data"));
      EXPECT_FALSE(group->abort("second"));
    }
    try {
      for (int i = 0; i < 2; ++i) group->barrier();
      ADD_FAILURE() << "the barrier passed";
    } catch (const GroupAborted& error) {
      EXPECT_EQ(error.failure().cause, "no more data");
    }
  });
}

TEST_P(GroupContract, RanksThatDisagreeAreTold) {
  if (GetParam().ranks == 1) return;
  run([](auto group) {
    const at::Tensor tensor = torch::ones({group->rank() == 0 ? 10 : 11});
    try {
      group->all_reduce(tensor);
      ADD_FAILURE() << "different sizes were reduced";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("10 x Float"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("11 x Float"), std::string::npos) << error.what();
    }
  });
}

TEST_P(GroupContract, ABarrierDoesNotMatchAReduce) {
  if (GetParam().ranks == 1) return;
  run([](auto group) {
    const at::Tensor tensor = torch::ones({10});
    const auto calls = [&] {
      for (int i = 0; i < 4; ++i) group->all_reduce(tensor);  // old notes that look alike
      if (group->rank() == 0)
        group->barrier();
      else
        group->all_reduce(tensor);
    };
    EXPECT_THROW(calls(), Error);  // between nodes the news may come before what another rank owes this one
  });
}

TEST_P(GroupContract, ManySmallOnesInARow) {
  run([](auto group) {
    const at::Tensor tensor = torch::zeros({1}, torch::kLong);
    for (int i = 0; i < 300; ++i) {
      tensor.fill_(i + group->rank());
      group->all_reduce(tensor);
      const int n = group->size();
      ASSERT_EQ(tensor.template item<std::int64_t>(), n * i + n * (n - 1) / 2);
    }
  });
}

}  // namespace
}  // namespace lockstep::comm
