#include "lockstep/horovod/agreement.h"

#include <c10/core/ScalarType.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/usage_error.h"
#include "tests/support/what_of.h"

namespace lockstep::horovod {
namespace {

using ::testing::HasSubstr;

Call reduce_of(std::int64_t elements, comm::ReduceOp op = comm::ReduceOp::mean) {
  return {.kind = Kind::allreduce, .detail = std::int64_t(op), .dtype = std::int64_t(at::kFloat), .elements = elements};
}
Call joined(std::int64_t rounds) { return {.kind = Kind::join, .rounds = rounds}; }

TEST(Agreement, SaysWhatIsCalled) {
  EXPECT_EQ(describe(reduce_of(10)), "allreduce(10 x Float, mean)");
  EXPECT_EQ(describe({.kind = Kind::adasum, .dtype = std::int64_t(at::kHalf), .elements = 2}),
            "allreduce(2 x Half, Adasum)");
  EXPECT_EQ(describe({.kind = Kind::broadcast, .detail = 2, .dtype = std::int64_t(at::kLong), .elements = 3}),
            "broadcast(3 x Long, root 2)");
  EXPECT_EQ(describe(joined(4)), "join()");
}

TEST(Agreement, NamesBothSides) {
  const std::vector<Call> calls = {joined(1), reduce_of(10), reduce_of(11)};
  EXPECT_EQ(support::what_of([&] {
              (void)agreed(calls, {4, 6, 9});
            }),
            "ranks disagree: rank 6 calls allreduce(10 x Float, mean), rank 9 calls allreduce(11 x Float, mean)");
}

TEST(Agreement, WhoHasJoinedTakesPartInWhatZerosLeaveAlone) {
  const std::vector<int> names = {0, 3};
  for (const comm::ReduceOp op : {comm::ReduceOp::sum, comm::ReduceOp::mean})
    EXPECT_EQ(agreed({joined(0), reduce_of(5, op)}, names)->elements, 5);
  EXPECT_EQ(agreed({{.kind = Kind::adasum, .elements = 7}, joined(2)}, names)->elements, 7);
  for (const Call& call :
       {reduce_of(5, comm::ReduceOp::max), Call{.kind = Kind::allgather}, Call{.kind = Kind::barrier}})
    EXPECT_THAT(testing::usage_error([&] { (void)agreed({call, joined(0)}, names); }), HasSubstr("rank 3 has joined"));
  EXPECT_EQ(agreed({joined(0), joined(3)}, names), nullptr);
}

TEST(Agreement, TheLastToJoinHasTakenPartInTheLeast) {
  EXPECT_EQ(last_joined({joined(0), joined(3), joined(1)}), 0);
  EXPECT_EQ(last_joined({joined(2), joined(0), joined(1), joined(0)}), 3);
  EXPECT_EQ(last_joined({joined(0)}), 0);
}

}  // namespace
}  // namespace lockstep::horovod
