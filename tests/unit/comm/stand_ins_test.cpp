// Groups for tests of programs.

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/collectives.h"
#include "lockstep/comm/point_to_point.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/testing.h"
#include "tests/support/usage_error.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

TEST(FakeGroup, IsOneRankOfAWorldOfAnySize) {
  FakeGroup fake(5, 1000);
  Group& group = fake;
  EXPECT_EQ(group.rank(), 5);
  EXPECT_EQ(group.size(), 1000);
  EXPECT_EQ(group.shared_node(), nullptr);
  const at::Tensor tensor = at::full({2}, 3);
  group.all_reduce(tensor);
  group.broadcast(tensor, 999);
  group.barrier();
  EXPECT_TRUE(tensor.equal(at::full({2}, 3)));
  EXPECT_EQ(group.all_gather(tensor).size(), 1000u);
  EXPECT_TRUE(group.all_gather(tensor)[999].equal(tensor));
  const at::Tensor all = at::arange(2000), part = at::empty({2}, at::kLong), turned = at::empty({2000}, at::kLong);
  group.reduce_scatter(part, all);
  EXPECT_TRUE(part.equal(at::arange(10, 12)));
  group.all_to_all(turned, all);
  EXPECT_TRUE(turned.equal(all));
  group.all_gather_into_tensor(turned, part);
  EXPECT_EQ(turned[1999].item<int>(), 11);
  EXPECT_EQ(group.shared_empty({3}).numel(), 3);
}

TEST(FakeGroup, MovesNoMessage) {
  FakeGroup group(0, 2);
  const at::Tensor tensor = at::ones({2});
  send(group, tensor, 1);
  recv(group, tensor, 1);
  EXPECT_TRUE(tensor.equal(at::ones({2})));
}

TEST(FakeGroup, RefusesWhatOtherGroupsRefuse) {
  EXPECT_THAT(testing::usage_error([] { FakeGroup(2, 2); }), HasSubstr("rank 2 of 2"));
  FakeGroup fake(1, 3);
  Group& group = fake;
  EXPECT_THROW(group.broadcast(at::ones({1}), 3), UsageError);
  EXPECT_THROW(group.reduce_scatter(at::ones({1}), at::ones({2})), UsageError);
  EXPECT_THROW((void)group.new_group({1, 0}), UsageError);
  EXPECT_THROW(send(group, at::ones({1}), 1), UsageError) << "to itself";
}

TEST(FakeGroup, ItsPartsShareItsFate) {
  FakeGroup fake(2, 4);
  Group& group = fake;
  EXPECT_EQ(group.new_group({0, 1}), nullptr);
  const std::shared_ptr<Group> part = group.new_group({1, 2});
  EXPECT_EQ(part->rank(), 1);
  EXPECT_EQ(part->size(), 2);
  EXPECT_TRUE(part->abort("no more data"));
  EXPECT_FALSE(group.abort("again"));
  try {
    group.barrier();
    ADD_FAILURE() << "it has failed";
  } catch (const GroupAborted& aborted) {
    EXPECT_EQ(aborted.failure().to_string(), "rank 2: no more data");
  }
}

TEST(FakeGroup, EveryCollectiveIsThereOverIt) {
  FakeGroup group(1, 4);
  EXPECT_EQ(all_gather_uneven(group, at::ones({3, 2})).size(), 4u);
  EXPECT_EQ(broadcast_bytes(group, "mine", 1), "mine");
  EXPECT_EQ(group.split(0)->size(), 4);
  EXPECT_EQ(duplicate(group)->rank(), 1);
}

TEST(RecordingGroup, RemembersWhatIsCalled) {
  RecordingGroup group(std::make_shared<FakeGroup>(1, 3));
  group.all_reduce(at::ones({2, 3}), ReduceOp::mean);
  group.broadcast(at::ones({4}, at::kDouble), 2);
  send(group, at::ones({5}), 0);
  const std::shared_ptr<Group> part = group.new_group({1, 2});
  part->barrier();
  const std::vector<RecordedCall> wanted = {
      {.name = "all_reduce", .dtype = at::kFloat, .sizes = {2, 3}, .op = ReduceOp::mean},
      {.name = "broadcast", .dtype = at::kDouble, .sizes = {4}, .root = 2},
      {.name = "send", .dtype = at::kFloat, .sizes = {5}, .peer = 0},
      {.name = "new_group", .ranks = {1, 2}},
      {.name = "barrier", .group = {1, 2}}};
  EXPECT_EQ(group.calls(), wanted);
  EXPECT_EQ(group.count("barrier"), 1);
  group.clear_calls();
  EXPECT_TRUE(group.calls().empty());
  const std::shared_ptr<Group> inner = part->new_group({1});
  EXPECT_EQ(inner, nullptr) << "it is the other one";
  EXPECT_EQ(group.calls().at(0).group, (std::vector<int>{1, 2}));
}

TEST(RecordingGroup, ACallThatIsRefusedWasCalled) {
  RecordingGroup group(std::make_shared<SingleGroup>());
  EXPECT_THROW(group.broadcast(at::ones({1}), 1), UsageError);
  EXPECT_EQ(group.count("broadcast"), 1);
  EXPECT_NE(group.shared_node(), nullptr) << "what the inner group has, it has";
}

TEST(FailingGroup, FailsInTheCallThatWasPlanned) {
  const auto inner = std::make_shared<RecordingGroup>(std::make_shared<SingleGroup>());
  FailingGroup group(inner, {.at = 3, .cause = "the cable is out"});
  group.all_reduce(at::ones({1}), ReduceOp::sum);
  group.barrier();
  try {
    group.barrier();
    ADD_FAILURE() << "it was to fail";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the cable is out");
  }
  EXPECT_EQ(inner->count("barrier"), 1) << "nothing of the third is done";
  EXPECT_THROW(inner->barrier(), GroupAborted) << "the group has been told";
  EXPECT_THROW(group.barrier(), Error) << "nor does it come back";
  EXPECT_EQ(group.calls(), 4u);
}

TEST(FailingGroup, FailsOnTheRanksThatWerePlanned) {
  FailingGroup other(std::make_shared<FakeGroup>(1, 3), {.ranks = {0, 2}});
  EXPECT_NO_THROW(other.barrier());
  FailingGroup never(std::make_shared<FakeGroup>(1, 3), {.at = 0});
  EXPECT_NO_THROW(never.barrier());
  const auto inner = std::make_shared<FakeGroup>(2, 3);
  FailingGroup silent(inner, {.ranks = {0, 2}, .tells = false});
  EXPECT_THROW(silent.barrier(), Error);
  EXPECT_NO_THROW(inner->barrier()) << "nobody has told it";
}

TEST(FailingGroup, EveryKindOfCallCounts) {
  const at::Tensor one = at::ones({1});
  const std::vector<std::function<void(Group&)>> calls = {[&](Group& group) { group.all_reduce(one); },
                                                          [&](Group& group) { group.reduce_scatter(one, one); },
                                                          [&](Group& group) { group.broadcast(one); },
                                                          [&](Group& group) { (void)group.all_gather(one); },
                                                          [&](Group& group) { group.barrier(); },
                                                          [&](Group& group) { group.all_to_all(one, one); },
                                                          [&](Group& group) { group.all_gather_into_tensor(one, one); },
                                                          [&](Group& group) {
                                                            batch_isend_irecv(group, {{Way::send, one, 1}});
                                                          },
                                                          [&](Group& group) { (void)group.new_group({0}); },
                                                          [&](Group& group) { (void)group.shared_empty({1}); }};
  for (const auto& call : calls) {
    FailingGroup group(std::make_shared<FakeGroup>(0, 2), {});
    EXPECT_THROW(call(group), Error);
    EXPECT_EQ(group.calls(), 1u);
  }
}

TEST(WrappedGroup, NeedsAGroup) { EXPECT_THROW(RecordingGroup(nullptr), UsageError); }

}  // namespace
}  // namespace lockstep::comm
