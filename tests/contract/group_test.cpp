// What every Group must do, whatever it is made of.

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/support/ranks.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using support::RankKind;
using support::run_ranks;

struct World {
  RankKind kind;
  int ranks;
};

class GroupContract : public testing::TestWithParam<World> {
 protected:
  void run(const support::RankBody& body, support::RankOptions options = {}) {
    run_ranks(GetParam().kind, GetParam().ranks, body, options);
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, GroupContract,
                         testing::Values(World{RankKind::single, 1}, World{RankKind::threads, 1},
                                         World{RankKind::threads, 2}, World{RankKind::threads, 3},
                                         World{RankKind::threads, 8}, World{RankKind::processes, 1},
                                         World{RankKind::processes, 2}, World{RankKind::processes, 3},
                                         World{RankKind::processes, 5}, World{RankKind::processes, 8}),
                         [](const testing::TestParamInfo<World>& info) {
                           return std::string(support::to_string(info.param.kind)) + std::to_string(info.param.ranks);
                         });

// Values that tell ranks and places apart and add up exactly in every dtype.
at::Tensor example(int rank, std::int64_t elements, at::ScalarType dtype) {
  return (torch::arange(elements, torch::kLong).remainder(7) + rank).to(dtype);
}

const at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kLong};
// Empty, one, odd, one chunk exactly, and over several chunks with a rest.
const std::int64_t kSizes[] = {0, 1, 7, 1000, 65536, 200'003};

TEST_P(GroupContract, KnowsRankAndSize) {
  run([&](auto group) {
    EXPECT_EQ(group->size(), GetParam().ranks);
    EXPECT_GE(group->rank(), 0);
    EXPECT_LT(group->rank(), group->size());
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
    EXPECT_THROW(group->all_reduce(torch::zeros({3}, torch::kLong), ReduceOp::mean), UsageError);
  });
}

TEST_P(GroupContract, EverybodyGetsTheSameBitsInTreeOrder) {
  run([](auto group) {
    const auto value = [](int rank) {
      return torch::rand({5000}, torch::make_generator<at::CPUGeneratorImpl>(std::uint64_t(rank + 1))) * 1e3 - 500;
    };
    const std::function<at::Tensor(int, int)> tree = [&](int lo, int hi) -> at::Tensor {
      if (hi - lo == 1) return value(lo);
      int half = 1;
      while (half * 2 < hi - lo) half *= 2;
      return tree(lo, lo + half) + tree(lo + half, hi);
    };
    for (int round = 0; round < 3; ++round) {
      const at::Tensor tensor = value(group->rank());
      group->all_reduce(tensor);
      ASSERT_TRUE(torch::equal(tensor, tree(0, group->size())));
    }
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
    EXPECT_THROW(group->all_reduce(torch::zeros({2}, torch::kHalf)), UsageError);
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
  run(
      [](auto group) {
        group->barrier();
        if (group->rank() == 0) {
          std::this_thread::sleep_for(600ms);
          EXPECT_THROW(group->barrier(), GroupAborted);
          return;
        }
        try {
          group->barrier();
          ADD_FAILURE() << "did not wait";
        } catch (const GroupAborted& error) {
          EXPECT_NE(std::string(error.what()).find("waited 300 ms for rank 0"), std::string::npos) << error.what();
        }
      },
      {.timeout = 300ms});
}

TEST_P(GroupContract, ARankThatIsGoneAbortsAllOthers) {
  if (GetParam().ranks == 1) return;
  const bool processes = GetParam().kind == RankKind::processes;
  run(
      [&](auto group) {
        const at::Tensor tensor = torch::ones({300'000});
        group->all_reduce(tensor);
        if (group->rank() == 1) {
          if (processes) raise(SIGKILL);
          return;
        }
        try {
          for (int i = 0; i < 3; ++i) group->all_reduce(tensor);
          ADD_FAILURE() << "a collective ended without rank 1";
        } catch (const GroupAborted& error) {
          EXPECT_EQ(error.failure().rank, 1) << error.what();
        }
        EXPECT_THROW(group->barrier(), GroupAborted);
        EXPECT_THROW(group->broadcast(tensor), GroupAborted);
        EXPECT_THROW(group->all_gather(tensor), GroupAborted);
      },
      {.allowed_signal = SIGKILL});
}

TEST_P(GroupContract, AbortTellsEveryoneTheCause) {
  run([](auto group) {
    group->barrier();
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
    for (int i = 0; i < 4; ++i) group->all_reduce(tensor);  // old notes that look alike
    if (group->rank() == 0)
      EXPECT_THROW(group->barrier(), Error);
    else
      EXPECT_THROW(group->all_reduce(tensor), Error);
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
