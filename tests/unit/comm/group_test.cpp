#include "lockstep/comm/group.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/comm/world.h"
#include "tests/support/own_group.h"
#include "tests/support/usage_error.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;
using testing::usage_error;

TEST(OwnGroup, WithoutANodeHasOrdinaryTensorsAndNobodyToTell) {
  support::BareGroup group(std::make_shared<SingleGroup>());
  EXPECT_EQ(group.shared_node(), nullptr);
  EXPECT_THAT(usage_error([&] { group.node(); }), HasSubstr("shared_node()"));
  const at::Tensor tensor = group.shared_empty({2, 3}, at::kDouble);
  EXPECT_EQ(tensor.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(tensor.scalar_type(), at::kDouble);
  EXPECT_EQ(tensor.abs().sum().item<double>(), 0);
  EXPECT_THAT(usage_error([&] { group.shared_empty({-1}); }), HasSubstr("-1"));
  EXPECT_TRUE(group.abort("the learning rate is nan")) << "it is the only rank that it knows of";
}

TEST(OwnGroup, ThatHandsANodeOnFailsThroughIt) {
  const auto inner = std::make_shared<SingleGroup>();
  support::WrappingGroup group(inner);
  EXPECT_EQ(&group.node(), &inner->node());
  EXPECT_TRUE(group.abort("the learning rate is nan"));
  EXPECT_FALSE(group.abort("again"));
}

TEST(World, HasTheCollectivesOfItsGroup) {
  const World world({}, std::make_shared<SingleGroup>());
  at::Tensor tensor = at::ones({4});
  world.all_reduce(tensor);
  world.all_reduce(tensor, ReduceOp::max);
  world.broadcast(tensor);
  world.barrier();
  const at::Tensor part = world.shared_empty({4});
  world.reduce_scatter(part, tensor);
  EXPECT_TRUE(at::equal(part, tensor));
  EXPECT_TRUE(at::equal(world.all_gather(tensor).at(0), tensor));
}

TEST(World, OfAGroupWhosePlaceMakesNoSenseIsRefused) {
  const auto inner = std::make_shared<SingleGroup>();
  const auto refusal = [&](const Topology& place) {
    return usage_error([&] { (void)init({.group = std::make_shared<support::BareGroup>(inner, place)}); });
  };
  EXPECT_THAT(refusal({.rank = 2, .world = 2}), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(refusal({.rank = 0, .world = 2, .local_rank = -1}), HasSubstr("-1 of 1"));
}

TEST(World, OfAGroupIsNotToldWhereRanksMeet) {
  for (const InitOptions& beside : {InitOptions{.init_method = "tcp://node0:29500"}, InitOptions{.rank = 0},
                                    InitOptions{.world_size = 1}, InitOptions{.backend = "tcp"}}) {
    InitOptions options = beside;
    options.group = std::make_shared<SingleGroup>();
    EXPECT_THAT(usage_error([&] { (void)init(options); }), HasSubstr("a group is given, which has its ranks"));
  }
}

TEST(World, OfOneByHandMeetsNobody) {
  for (const char* backend : {"auto", "shm", "tcp"}) {
    const World world = init({.init_method = "tcp://node0.invalid:29500",
                              .rank = 0,
                              .world_size = 1,
                              .backend = backend,
                              .idle_cores_hint = false});
    EXPECT_EQ(world.size(), 1);
  }
}

TEST(World, HintsAtIdleCoresInOneLine) {
  EXPECT_EQ(idle_cores_hint(4, 1, 64),
            "lockstep: hint: 4 processes of 1 thread use 4 of 64 cores; more processes or init({.threads = 16}) would "
            "use the rest");
  EXPECT_EQ(idle_cores_hint(3, 1, 4),
            "lockstep: hint: 3 processes of 1 thread use 3 of 4 cores; more processes would use the rest");
  EXPECT_EQ(idle_cores_hint(4, 16, 64), "");
}

}  // namespace
}  // namespace lockstep::comm
