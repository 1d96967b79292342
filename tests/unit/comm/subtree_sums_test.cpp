#include "lockstep/comm/network/subtree_sums.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "lockstep/comm/shm/reduction_of.h"

namespace lockstep::comm {
namespace {

using Values = std::vector<std::byte>;

// Of a tensor of a rank: numbers, of bool 0 and 1.
Values values_of(int rank, at::ScalarType dtype, std::size_t elements) {
  std::mt19937 random(unsigned(rank) + 1);
  Values bytes(elements * c10::elementSize(dtype));
  for (std::byte& byte : bytes) byte = dtype == at::kBool ? std::byte(random() & 1) : std::byte(random());
  // The topmost bit of the exponent is clear: neither infinite nor NaN.
  const std::size_t width = c10::elementSize(dtype);
  for (std::size_t at = width - 1; at::isFloatingType(dtype) && at < bytes.size(); at += width)
    bytes[at] &= std::byte(0xbf);
  return bytes;
}

struct Made {
  RankSpan ranks;
  Values bytes;
};

// What each node would send, and what becomes of it.
Values in_two_goes(const std::vector<int>& nodes, const std::vector<Values>& tensors, at::ScalarType dtype, ReduceOp op,
                   std::size_t elements) {
  const Levels levels(nodes);
  const SubtreeSums sums(dtype, op, levels.world());
  std::vector<Made> made;
  for (int node = 0; node < levels.nodes(); ++node)
    for (const RankSpan& run : levels.runs(node)) {
      std::vector<const std::byte*> inputs;
      for (int rank = run.first; rank < run.last; ++rank) inputs.push_back(tensors[std::size_t(rank)].data());
      made.push_back({run, Values(elements * sums.width_of(run))});
      sums.add_up(run, inputs.data(), elements, made.back().bytes.data());
    }
  std::vector<SubtreeValue> values;
  for (const Made& one : made) values.push_back({one.ranks, one.bytes.data()});
  Values result(elements * sums.width());
  sums.finish(values, elements, result.data());
  return result;
}

Values at_once(const std::vector<Values>& tensors, at::ScalarType dtype, ReduceOp op, std::size_t elements) {
  std::vector<const std::byte*> inputs;
  for (const Values& tensor : tensors) inputs.push_back(tensor.data());
  Values result(elements * c10::elementSize(dtype));
  std::byte* const to = result.data();
  const int ranks = int(tensors.size());
  tree_reduce(reduction_of(dtype, op, ranks), {inputs.data(), ranks, &to, 1}, 0, elements);
  return result;
}

TEST(SubtreeSums, HaveTheBitsOfOneReduction) {
  const std::vector<int> worlds[] = {{0, 0, 1, 1},       {0, 0, 0, 1}, {0, 1, 1, 1}, {0, 0, 0, 1, 1, 1, 1, 1},
                                     {0, 0, 1, 2, 2, 2}, {0, 1, 2}};
  const at::ScalarType dtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kChar,
                                   at::kByte,  at::kInt,    at::kLong,     at::kBool};
  for (const std::vector<int>& nodes : worlds)
    for (const at::ScalarType dtype : dtypes)
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max, ReduceOp::product})
        for (const std::size_t elements : {0, 1, 1024, 2077}) {
          if (op == ReduceOp::mean && !at::isFloatingType(dtype)) continue;
          std::vector<Values> tensors;
          for (int rank = 0; rank < int(nodes.size()); ++rank) tensors.push_back(values_of(rank, dtype, elements));
          ASSERT_EQ(in_two_goes(nodes, tensors, dtype, op, elements), at_once(tensors, dtype, op, elements))
              << nodes.size() << " ranks, " << dtype << " x " << elements << ", op " << int(op);
        }
}

TEST(SubtreeSums, OfOneRankTravelAsTheyAre) {
  const SubtreeSums halves(at::kHalf, ReduceOp::sum, 4), longs(at::kLong, ReduceOp::sum, 4);
  EXPECT_EQ(halves.width_of({2, 3}), 2u);
  EXPECT_EQ(halves.width_of({0, 2}), 4u);
  EXPECT_EQ(longs.width_of({0, 2}), 8u);
}

}  // namespace
}  // namespace lockstep::comm
