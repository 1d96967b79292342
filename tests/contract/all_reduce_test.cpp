// An all-reduce changes its way with the size: the bits must not, for any number of ranks. And no collective may let a
// rank go on as long as another still reads what is that rank's.

#include <chrono>
#include <thread>

#include "tests/contract/group_contract.h"

namespace lockstep::comm {
namespace {

// The bytes at which an all-reduce changes its way: what a post holds, what goes at once, one, two and three chunks.
const std::int64_t kBorders[] = {0, 40, 2048, 4096, 262'144, 524'288, 786'432};
at::Tensor tree_of(ReduceOp op, int lo, int hi, const std::function<at::Tensor(int)>& tensor_of) {
  if (hi - lo == 1) return tensor_of(lo);
  int half = 1;
  while (half * 2 < hi - lo) half *= 2;
  return combine(op, tree_of(op, lo, lo + half, tensor_of), tree_of(op, lo + half, hi, tensor_of));
}

TEST_P(GroupContract, EverybodyGetsTheSameBitsInTreeOrder) {
  run([](auto group) {
    for (const std::int64_t border : kBorders)
      for (const std::int64_t elements : {border / 4 - 1, border / 4, border / 4 + 1, border / 4 + 17}) {
        if (elements < 0) continue;
        const auto value = [&](int rank) { return random_example(rank, elements); };
        const at::Tensor tensor = value(group->rank());
        group->all_reduce(tensor);
        ASSERT_TRUE(torch::equal(tensor, tree_of(ReduceOp::sum, 0, group->size(), value))) << elements;
      }
  });
}

TEST_P(GroupContract, AllDtypesAndOpsAroundTheBorders) {
  run([](auto group) {
    for (const std::int64_t border : {2048, 262'144})
      for (const at::ScalarType dtype : kDtypes)
        for (const ReduceOp op : kOps) {
          const std::int64_t width = std::int64_t(c10::elementSize(dtype));
          for (const std::int64_t elements : {border / width - 1, border / width + 3}) {
            const auto value = [&](int rank) {
              const at::Tensor all = example(rank, elements, dtype);
              return op == ReduceOp::product && at::isFloatingType(dtype) ? all.clamp_max(rank < 3 ? 4 : 1) : all;
            };
            const at::Tensor tensor = value(group->rank());
            group->all_reduce(tensor, op);
            ASSERT_TRUE(torch::equal(tensor, tree_of(op, 0, group->size(), value)))
                << dtype << " x " << elements << ", op " << int(op);
          }
        }
  });
}

// Whoever is late must find what the others left, whatever came before: the halves of the staging areas are shared by
// all collectives.
TEST_P(GroupContract, CollectivesOfAllKindsAndSizesInTurn) {
  run([](auto group) {
    const int ranks = group->size();
    for (int round = 0; round < 40; ++round) {
      const std::int64_t elements = kBorders[round * 5 % 7] / 4 + round;
      const auto value = [&](int rank) { return example(rank + round, elements, at::kFloat); };
      if (round % ranks == group->rank()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const at::Tensor tensor = value(group->rank());
      switch (round % 4) {
        case 0:
          group->broadcast(tensor, round % ranks);
          ASSERT_TRUE(torch::equal(tensor, value(round % ranks))) << round;
          break;
        case 1:
          ASSERT_TRUE(torch::equal(group->all_gather(tensor).back(), value(ranks - 1))) << round;
          break;
        default:
          group->all_reduce(tensor, ReduceOp::max);
          ASSERT_TRUE(torch::equal(tensor, combine_all(ReduceOp::max, ranks, value))) << round;
      }
    }
  });
}

// The data of shared tensors is read where it lies: whoever comes back from the call may change it at once.
TEST_P(GroupContract, ASharedTensorIsItsOwnersAgainWhenTheCallIsOver) {
  run([](auto group) {
    const at::Tensor shared = group->shared_empty({200'000});
    for (int round = 0; round < 20; ++round) {
      const int root = round % group->size();
      shared.fill_(group->rank() == root ? 7 : 1);
      group->broadcast(shared, root);
      const at::Tensor got = shared.clone();
      shared.fill_(-1);
      ASSERT_TRUE(torch::equal(got, torch::full_like(got, 7))) << round;

      shared.fill_(float(group->rank()));
      const std::vector<at::Tensor> all = group->all_gather(shared);
      shared.fill_(-1);
      for (int rank = 0; rank < group->size(); ++rank)
        ASSERT_TRUE(torch::equal(all[std::size_t(rank)], torch::full_like(got, float(rank)))) << round;
    }
  });
}

}  // namespace
}  // namespace lockstep::comm
