// Collectives that return before they are done.

#include "lockstep/comm/async.h"

#include <gmock/gmock.h>

#include <thread>

#include "lockstep/comm/collectives.h"
#include "tests/contract/group_contract.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST_P(GroupContract, AsynchronousCallsEndInTheOrderOfTheCalls) {
  run([](auto group) {
    const int ranks = group->size();
    AsyncCollectives async(duplicate(*group));
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 30; ++i) {
      tensors.push_back(torch::full({i % 3 == 0 ? 70'001 : i + 1}, float(i)));
      works.push_back(async.all_reduce(tensors.back()));
    }
    group->barrier();  // the group itself is free meanwhile
    works.back().wait();
    EXPECT_TRUE(async.is_idle());
    for (std::size_t i = 0; i < works.size(); ++i) {
      EXPECT_TRUE(works[i].is_completed()) << i;
      works[i].wait();
      ASSERT_TRUE(torch::equal(tensors[i], torch::full_like(tensors[i], float(i) * float(ranks)))) << i;
    }
  });
}

TEST_P(GroupContract, EachCollectiveHasItsAsynchronousForm) {
  run([](auto group) {
    const int ranks = group->size();
    AsyncCollectives async(duplicate(*group));
    EXPECT_EQ(async.rank(), group->rank());
    EXPECT_EQ(async.size(), ranks);
    const at::Tensor mine = example(group->rank(), ranks, at::kFloat);
    const at::Tensor part = torch::zeros({1}), turned = torch::zeros({ranks}), sent = mine.clone();
    std::vector<at::Tensor> gathered;
    for (int rank = 0; rank < ranks; ++rank) gathered.push_back(torch::zeros({ranks}));
    int ran = 0;
    const std::vector<Work> works = {async.reduce_scatter(part, mine, ReduceOp::max),
                                     async.broadcast(sent, ranks - 1),
                                     async.all_gather(gathered, mine),
                                     async.all_to_all(turned, mine),
                                     async.barrier(),
                                     async.run([&](Group& own) { ran = own.size(); })};
    for (const Work& work : works) work.wait(20s);
    EXPECT_TRUE(torch::equal(sent, example(ranks - 1, ranks, at::kFloat)));
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(torch::equal(gathered[std::size_t(rank)], example(rank, ranks, at::kFloat)));
      EXPECT_EQ(turned[rank].template item<float>(), gathered[std::size_t(rank)][group->rank()].template item<float>());
    }
    EXPECT_EQ(part.template item<float>(), turned.max().template item<float>());
    EXPECT_EQ(ran, ranks);
  });
}

TEST_P(GroupContract, AnErrorIsToldByWait) {
  run([this](auto group) {
    AsyncCollectives async(duplicate(*group));
    const Work refused = async.all_reduce(torch::zeros({2}, torch::kComplexFloat));
    const Work few = async.all_gather({}, torch::zeros({2}));
    const at::Tensor one = torch::ones({2});
    async.all_reduce(one).wait();  // the queue goes on
    EXPECT_EQ(one[0].template item<float>(), float(group->size()));
    EXPECT_TRUE(refused.is_completed());
    for (int i = 0; i < 2; ++i) EXPECT_THROW(refused.wait(), UsageError) << "each time";
    EXPECT_THROW(few.wait(), UsageError);
    if (group->size() == 1) return;
    this->let_all_arrive(*group, true);
    const Work different = async.all_reduce(torch::ones({group->rank() == 0 ? 10 : 11}));
    try {
      different.wait();
      ADD_FAILURE() << "different sizes were reduced";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("10 x Float"));
      EXPECT_THAT(error.what(), HasSubstr("11 x Float"));
    }
    EXPECT_THROW(async.barrier().wait(), GroupAborted);
    EXPECT_THROW(group->barrier(), GroupAborted) << "it is one fate";
  });
}

TEST_P(GroupContract, WaitHasADeadlineOfItsOwn) {
  if (GetParam().ranks == 1) return;
  run([](auto group) {
    AsyncCollectives async(duplicate(*group));
    if (group->rank() == 0) {
      const Work work = async.barrier();
      EXPECT_FALSE(work.is_completed());
      try {
        work.wait(5ms);
        ADD_FAILURE() << "the others wait for the group's barrier first";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("not ended within 5 ms"));
      }
      group->barrier();
      work.wait();
      return;
    }
    group->barrier();
    async.barrier().wait();
  });
}

TEST_P(GroupContract, AbortEndsWhatIsUnderWay) {
  if (GetParam().ranks == 1) return;
  run([this](auto group) {
    AsyncCollectives async(duplicate(*group));
    group->barrier();
    this->let_all_arrive(*group, group->rank() == 1);
    if (group->rank() == 1) {
      group->abort("no more data");
      return;
    }
    const Work first = async.barrier(), second = async.barrier();
    for (const Work& work : {first, second}) {
      try {
        work.wait();
        ADD_FAILURE() << "rank 1 never came";
      } catch (const GroupAborted& error) {
        EXPECT_EQ(error.failure().cause, "no more data");
      }
    }
  });
}

TEST_P(GroupContract, AnExceptionDoesNotWaitForPeersThatNeverCome) {
  if (GetParam().ranks == 1) return;
  run([](auto group) {
    const auto fail = [&] {
      AsyncCollectives async(duplicate(*group));
      if (group->rank() == 1) {
        async.barrier();
        throw std::runtime_error("a batch was bad");
      }
      group->barrier();  // rank 1 never comes
    };
    if (group->rank() == 1)
      EXPECT_THROW(fail(), std::runtime_error);
    else
      EXPECT_THROW(fail(), GroupAborted);
  });
}

}  // namespace
}  // namespace lockstep::comm
