// What every Group must do with tensors in memory that its ranks share.

#include <csignal>
#include <vector>

#include "tests/contract/group_contract.h"

namespace lockstep::comm {
namespace {

TEST_P(GroupContract, SharedTensorsGiveTheSameBits) {
  run([](auto group) {
    for (at::ScalarType dtype : kDtypes)
      for (std::int64_t size : {0, 1, 13, 3000, 200'003})
        for (ReduceOp op : {ReduceOp::sum, ReduceOp::min}) {
          const at::Tensor plain = random_example(group->rank(), size).to(dtype);
          const at::Tensor shared = group->shared_empty({size}, dtype);
          ASSERT_EQ(shared.scalar_type(), dtype);
          ASSERT_TRUE(torch::equal(shared, torch::zeros({size}, dtype)));
          shared.copy_(plain);
          group->all_reduce(plain, op);
          group->all_reduce(shared, op);
          ASSERT_TRUE(torch::equal(plain, shared)) << dtype << " x " << size << ", op " << int(op);
        }
  });
}

TEST_P(GroupContract, PartsOfSharedTensorsAndOtherCollectives) {
  run([](auto group) {
    const int ranks = group->size();
    const at::Tensor shared = group->shared_empty({100, 1000});
    EXPECT_TRUE(shared.is_contiguous());
    const at::Tensor rows = shared.narrow(0, 3, 90);
    for (int round = 0; round < 3; ++round) {
      shared.fill_(group->rank() + round);
      group->all_reduce(rows);
      const int sum = ranks * (ranks - 1) / 2 + ranks * round;
      ASSERT_TRUE(torch::equal(rows, torch::full_like(rows, sum)));
      ASSERT_TRUE(torch::equal(shared[0], torch::full({1000}, float(group->rank() + round))));
    }
    // Each rank's at another place, by a number of bytes that is no multiple of a cache line.
    const at::Tensor elsewhere = shared.view({-1}).narrow(0, 1 + group->rank(), 50'001);
    shared.fill_(1);
    group->all_reduce(elsewhere);
    ASSERT_TRUE(torch::equal(elsewhere, torch::full({50'001}, float(ranks))));
    shared.fill_(group->rank());
    group->broadcast(shared, ranks - 1);
    ASSERT_TRUE(torch::equal(shared, torch::full_like(shared, float(ranks - 1))));
    shared.fill_(group->rank());
    const auto gathered = group->all_gather(shared);
    for (int rank = 0; rank < ranks; ++rank)
      ASSERT_TRUE(torch::equal(gathered[std::size_t(rank)], torch::full_like(shared, float(rank))));
  });
}

TEST_P(GroupContract, SharedAndOrdinaryTensorsMeet) {
  run([](auto group) {
    const at::Tensor shared = group->shared_empty({150'000});
    const at::Tensor other = group->shared_empty({150'000});
    for (int round = 0; round < 4; ++round) {
      const int kind = (group->rank() + round) % 3;
      const at::Tensor tensor = kind == 0 ? shared : kind == 1 ? other : torch::empty({150'000});
      tensor.copy_(random_example(group->rank(), 150'000));
      const at::Tensor plain = tensor.clone();
      group->all_reduce(tensor);
      group->all_reduce(plain);
      ASSERT_TRUE(torch::equal(tensor, plain));
    }
  });
}

TEST_P(GroupContract, SharedTensorsOutliveTheGroupAndFreeTheirMemory) {
  run([](auto group) {
    std::vector<at::Tensor> kept;
    for (int i = 0; i < 20; ++i) {
      const at::Tensor tensor = group->shared_empty({1'000'000});
      tensor.fill_(1);
      group->all_reduce(tensor);
      if (i % 10 == group->rank() % 10) kept.push_back(tensor);
    }
    group->barrier();
    group.reset();
    for (const at::Tensor& tensor : kept)
      ASSERT_EQ(tensor[0].template item<float>(), tensor[999'999].template item<float>());
  });
}

TEST_P(GroupContract, SharedTensorsOfNoSizeOrTooLargeAreRefused) {
  run([](auto group) {
    EXPECT_THROW(group->shared_empty({3, -1}), UsageError);
    if (GetParam().kind == RankKind::single) return;
    EXPECT_THROW(group->shared_empty({std::int64_t(1) << 45}), UsageError);
    const at::Tensor tensor = torch::ones({5});
    group->all_reduce(tensor);  // the group is as good as before
    EXPECT_EQ(tensor[4].template item<float>(), float(group->size()));
  });
}

TEST_P(GroupContract, ARankThatIsGoneAmidSharedTensorsAbortsAllOthers) {
  if (GetParam().ranks == 1) return;
  lose_rank_one([](Group& group) { return group.shared_empty({300'000}); },
                [](Group& group, const at::Tensor& tensor) {
                  EXPECT_THROW(group.shared_empty({3}), GroupAborted);
                  EXPECT_THROW(group.reduce_scatter(torch::ones({1}), torch::ones({group.size()})), GroupAborted);
                  tensor.fill_(1);  // is still there
                });
}

}  // namespace
}  // namespace lockstep::comm
