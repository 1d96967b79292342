// Messages between two ranks, and what is made of them. Small worlds: more than two ranks have to do with none.

#include "lockstep/comm/point_to_point.h"

#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "lockstep/comm/async.h"
#include "lockstep/comm/collectives.h"
#include "tests/contract/group_contract.h"
#include "tests/support/own_group.h"
#include "tests/support/usage_error.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

class MessageContract : public GroupContract {};

// As the worlds of GroupContract: under mpirun, one rank of its world.
std::vector<Ranks> message_worlds() {
  if (const char* const ranks = std::getenv("LOCKSTEP_TEST_MPI_RANKS")) return {{RankKind::mpi, std::atoi(ranks)}};
  return {{RankKind::single, 1},  {RankKind::threads, 2},       {RankKind::threads, 3},
          {RankKind::wrapped, 3}, {RankKind::processes, 2},     {RankKind::processes, 3},
          {RankKind::nodes, 2},   {RankKind::nodes, 3, {2, 1}}, {RankKind::hierarchical, 3, {2, 1}},
          {RankKind::gloo, 3}};
}

INSTANTIATE_TEST_SUITE_P(Worlds, MessageContract, ::testing::ValuesIn(message_worlds()),
                         [](const ::testing::TestParamInfo<Ranks>& info) {
                           return support::to_string(info.param.kind) + std::to_string(info.param.ranks);
                         });

// From nothing to several chunks of every way, and more than a connection takes in.
const std::int64_t kMessageSizes[] = {0, 1, 1000, 70'001, 700'003};

P2POp isend(const at::Tensor& tensor, int peer, int tag = 0) { return {Way::send, tensor, peer, tag}; }
P2POp irecv(const at::Tensor& tensor, int peer, int tag = 0) { return {Way::recv, tensor, peer, tag}; }

TEST_P(MessageContract, ABatchGoesRoundTheRing) {
  if (GetParam().ranks == 1) return;
  run([](auto group) {
    const int ranks = group->size(), rank = group->rank();
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (at::ScalarType dtype : {at::kFloat, at::kBool, at::kComplexDouble})
      for (const std::int64_t size : kMessageSizes) {
        const at::Tensor received = torch::zeros({size}, dtype);
        batch_isend_irecv(*group, {isend(example(rank, size, dtype), next), irecv(received, before)});
        ASSERT_TRUE(torch::equal(received, example(before, size, dtype))) << dtype << " x " << size;
      }
    // Strided on both sides, and both ways with one peer.
    const at::Tensor columns = torch::zeros({9000, 3}), sent = example(rank, 18'000, at::kFloat).view({2, 9000}).t();
    const at::Tensor back = torch::zeros({5}, torch::kLong);
    batch_isend_irecv(*group, {isend(sent.select(1, 1), next), irecv(columns.select(1, 2), before),
                               isend(example(rank, 5, at::kLong), before, 3), irecv(back, next, 3)});
    ASSERT_TRUE(torch::equal(columns.select(1, 2), example(before, 18'000, at::kFloat).narrow(0, 9000, 9000)));
    ASSERT_EQ(columns.narrow(1, 0, 2).abs().sum().template item<float>(), 0);
    ASSERT_TRUE(torch::equal(back, example(next, 5, at::kLong)));
    batch_isend_irecv(*group, {});
  });
}

// The staging areas serve both; who has no message goes on.
TEST_P(MessageContract, MessagesBetweenCollectives) {
  if (GetParam().ranks == 1) return;
  run([](auto group) {
    const int ranks = group->size(), last = ranks - 1;
    for (int i = 0; i < 4; ++i) {
      const at::Tensor tensor = torch::full({i % 2 == 0 ? 150'001 : 3}, float(group->rank() + i));
      if (group->rank() == 0) send(*group, tensor, last, i);
      if (group->rank() == last) {
        const at::Tensor received = torch::empty_like(tensor);
        recv(*group, received, 0, i);
        ASSERT_TRUE(torch::equal(received, torch::full_like(received, float(i))));
      }
      group->all_reduce(tensor);
      ASSERT_TRUE(torch::equal(tensor, torch::full_like(tensor, float(ranks * i + ranks * (ranks - 1) / 2)))) << i;
    }
  });
}

TEST_P(MessageContract, MessagesKeepTheirOrder) {
  if (GetParam().ranks == 1) return;
  run([](auto group) {
    for (int i = 0; i < 50; ++i) {
      const at::Tensor value = torch::full({1 + i % 3}, i, torch::kLong);
      if (group->rank() == 0) send(*group, value, 1, 65'535 - i);
      if (group->rank() != 1) continue;
      const at::Tensor received = torch::zeros_like(value);
      recv(*group, received, 0, 65'535 - i);
      ASSERT_TRUE(torch::equal(received, value));
    }
    std::vector<P2POp> ops;
    const at::Tensor values = torch::full({20, 30}, -1, torch::kLong);
    for (int i = 0; i < 20; ++i) {
      if (group->rank() == 0) ops.push_back(isend(values[i].fill_(i), 1, i));
      if (group->rank() == 1) ops.push_back(irecv(values[i], 0, i));
    }
    batch_isend_irecv(*group, ops);
    if (group->rank() < 2) {
      EXPECT_TRUE(torch::equal(values.select(1, 29), torch::arange(20, torch::kLong)));
    }
    const std::string text(100'000, 'x');
    if (group->rank() == 0) {
      send_bytes(*group, text, 1);
      send_bytes(*group, "", 1);
    } else if (group->rank() == 1) {
      EXPECT_EQ(recv_bytes(*group, 0), text);
      EXPECT_EQ(recv_bytes(*group, 0), "");
    }
  });
}

TEST_P(MessageContract, AnotherMessageThanExpectedIsNamedByBothSides) {
  if (GetParam().ranks != 2) return;
  const std::pair<P2POp, std::string> wrongs[] = {{irecv(torch::zeros({4}), 0, 7), "recv(4 x Float, tag 7)"},
                                                  {irecv(torch::zeros({3}, at::kInt), 0, 7), "recv(3 x Int, tag 7)"},
                                                  {irecv(torch::zeros({3}), 0, 8), "recv(3 x Float, tag 8)"}};
  for (const auto& [wrong, name] : wrongs)
    run([&wrong = wrong, &name = name](auto group) {
      const std::string told = failure_of([&] {
        if (group->rank() == 1) return batch_isend_irecv(*group, {wrong});
        send(*group, torch::ones({3}), 1, 7);
        group->barrier();  // a network has taken the message
      });
      EXPECT_THAT(told, HasSubstr("ranks disagree: rank 1 calls " + name + ", rank 0 calls send(3 x Float, tag 7)"));
      EXPECT_EQ(told.find('\n'), std::string::npos);
    });
}

TEST_P(MessageContract, WhatCannotBeIsRefused) {
  run([](auto group) {
    const int ranks = group->size(), rank = group->rank(), peer = (rank + 1) % ranks;
    const at::Tensor tensor = torch::zeros({2});
    const auto refusal = [&](const P2POp& op) {
      return testing::usage_error([&] { batch_isend_irecv(*group, {op}); });
    };
    EXPECT_EQ(refusal(isend(tensor, ranks)),
              "send: peer " + std::to_string(ranks) + " is not one of the ranks 0 to " + std::to_string(ranks - 1));
    EXPECT_THAT(refusal(irecv(tensor, -1)), HasSubstr("recv: peer -1 is not one of the ranks"));
    EXPECT_THAT(refusal(isend(tensor, rank)), HasSubstr("is this rank"));
    if (ranks > 1) {
      EXPECT_EQ(refusal(irecv(tensor, peer, 65'536)), "recv: tag 65536 is not one of 0 to 65535");
      EXPECT_THAT(refusal(isend({}, peer)), HasSubstr("send: the tensor is undefined"));
      EXPECT_THAT(refusal(isend(tensor.to_sparse(), peer)), HasSubstr("needs a dense tensor, this one is sparse"));
      EXPECT_THAT(refusal(irecv(tensor.narrow(0, 0, 1).expand({4}), peer)),
                  HasSubstr("several elements of the tensor"));
      const at::Tensor complex = torch::zeros({2}, at::kComplexDouble);
      EXPECT_THAT(refusal(isend(complex.conj(), peer)), HasSubstr("send: this tensor is conjugated or negated only"));
      EXPECT_THAT(refusal(irecv(at::imag(complex.conj()), peer)), HasSubstr("resolve_neg()"));
      support::BareGroup bare(group);
      EXPECT_EQ(testing::usage_error([&] { send(bare, tensor, peer); }),
                "send and recv: groups of this kind have none");
    }
    group->barrier();  // is as good as before
  });
}

TEST_P(MessageContract, ADeadlineNamesThePeerItsStepAndTheCall) {
  if (GetParam().ranks != 2) return;
  const bool nodes = is_over_network();
  run(
      [&](auto group) {
        group->node().member.set_step(7);
        // Each waits for the other, who sends nothing.
        try {
          recv(*group, torch::zeros({3}), 1 - group->rank(), 5);
          ADD_FAILURE() << "something was received";
        } catch (const GroupAborted& error) {
          const int culprit = error.failure().rank;
          EXPECT_THAT(error.what(),
                      AllOf(HasSubstr("rank " + std::to_string(1 - culprit) + " waited 1000 ms for rank " +
                                      std::to_string(culprit) + (nodes ? " (" : " (step 7, ")),
                            HasSubstr(nodes ? "in recv(3 x Float, tag 5), step 7" : "in recv(3 x Float, tag 5)")));
        }
      },
      {.timeout = 1000ms});
}

TEST_P(MessageContract, APeerThatIsGoneEndsTheWait) {
  if (GetParam().ranks == 1) return;
  lose_rank_one([](Group&) { return torch::ones({100'000}); },
                [](Group& group, const at::Tensor& tensor) {
                  EXPECT_THROW(recv(group, tensor, 1), GroupAborted);
                  EXPECT_THROW(send(group, tensor, 1), GroupAborted);
                });
  // In the middle of a message: no chunk of it is lost on the way, and none comes behind.
  run(
      [&](auto group) {
        const at::Tensor tensor = torch::ones({4'000'000});
        group->barrier();
        if (group->rank() == 1) {
          recv(*group, torch::zeros({1}), 0);
          if (has_processes()) raise(SIGKILL);
        } else if (group->rank() == 0) {
          try {
            batch_isend_irecv(*group, {isend(torch::ones({1}), 1), isend(tensor, 1)});
            recv(*group, tensor, 1);
            ADD_FAILURE() << "rank 1 has taken what it did not ask for";
          } catch (const GroupAborted& error) {
            EXPECT_EQ(error.failure().rank, 1) << error.what();
          }
        }
      },
      {.allowed_signal = SIGKILL});
}

TEST_P(MessageContract, AnAbortEndsTheWait) {
  if (GetParam().ranks == 1) return;
  run([](auto group) {
    if (group->rank() == 1) group->abort("no more data");
    if (group->rank() != 0) return;
    EXPECT_THAT(failure_of([&] { recv(*group, torch::zeros({1}), 1); }), HasSubstr("no more data"));
  });
}

TEST_P(MessageContract, AMonitoredBarrierNamesWhoIsMissing) {
  run([](auto group) {
    const int last = group->size() - 1;
    for (int i = 0; i < 3; ++i) monitored_barrier(*group, 20s);
    if (last == 0) return;
    const std::string told = failure_of([&] {
      if (group->rank() != last) monitored_barrier(*group, 200ms);
      recv(*group, torch::zeros({1}), 0);  // which never sends it
    });
    EXPECT_THAT(told, AllOf(HasSubstr("monitored_barrier: rank 0 waited 200 ms for rank "),
                            ::testing::EndsWith("rank " + std::to_string(last))));
  });
}

// Longer than what the others wait for rank 0, which would be named instead.
TEST_P(MessageContract, AMonitoredBarrierIsOverBeforeTheGroupsDeadline) {
  if (GetParam().ranks != 3) return;
  run(
      [](auto group) {
        const std::string told = failure_of([&] {
          if (group->rank() != 2) monitored_barrier(*group, std::chrono::milliseconds::max());
          std::this_thread::sleep_for(1500ms);  // which is where rank 2 is
          group->barrier();
        });
        EXPECT_THAT(told, AllOf(HasSubstr("monitored_barrier: rank 0 waited 1000 ms for rank "), HasSubstr("rank 2")));
        EXPECT_THAT(told, ::testing::Not(HasSubstr("for rank 1")));
      },
      {.timeout = 2000ms});
}

// The thread that receives is not in the mode, and what comes has to be copied.
TEST_P(MessageContract, TensorsOfInferenceModeReceive) {
  if (GetParam().ranks != 2 || is_over_network()) return;
  run([](auto group) {
    const c10::InferenceMode mode;
    const at::Tensor columns = torch::zeros({3, 2});
    AsyncCollectives async(group);
    if (group->rank() == 0) async.isend(torch::ones({3}), 1).wait(10s);
    if (group->rank() == 1) {
      async.irecv(columns.select(1, 0), 0).wait(10s);
      EXPECT_EQ(columns.sum().template item<float>(), 3);
    }
  });
}

// What throws within messages ends the group on all ranks, for they may be half moved.
TEST_P(MessageContract, WhatMessagesThrowEndsTheGroup) {
  if (GetParam().ranks != 2) return;
  class Throwing final : public Messages {
   public:
    Message* next() override { throw std::runtime_error("the disk of the messages is full"); }
    void moved(Message&) override {}
  };
  run([](auto group) {
    if (group->rank() == 0) {
      Throwing messages;
      EXPECT_THROW(group->carry(messages), std::runtime_error);
    }
    EXPECT_THAT(failure_of([&] { recv(*group, torch::zeros({100'000}), 1 - group->rank()); }),
                HasSubstr("the disk of the messages is full"));
  });
}

TEST_P(MessageContract, AllIsGatheredIntoOneTensor) {
  run([](auto group) {
    const int ranks = group->size(), rank = group->rank();
    for (at::ScalarType dtype : {at::kBFloat16, at::kLong})
      for (const std::int64_t size : {0, 1, 500, 200'003}) {
        std::vector<at::Tensor> parts;
        for (int peer = 0; peer < ranks; ++peer) parts.push_back(example(peer, size, dtype));
        const at::Tensor expected = torch::cat(parts), output = torch::zeros({ranks, size}, dtype);
        group->all_gather_into_tensor(output, example(rank, size, dtype));
        ASSERT_TRUE(torch::equal(output.flatten(), expected)) << dtype << " x " << size;
        // Where it is already, and into every second place.
        const at::Tensor own = torch::zeros({ranks, size}, dtype), wide = torch::zeros({ranks * size, 2}, dtype);
        own[rank].copy_(example(rank, size, dtype));
        group->all_gather_into_tensor(own, own[rank]);
        group->all_gather_into_tensor(wide.select(1, 1), own[rank]);
        ASSERT_TRUE(torch::equal(own, output));
        ASSERT_TRUE(torch::equal(wide.select(1, 1), expected));
        support::BareGroup(group).all_gather_into_tensor(own.zero_(), example(rank, size, dtype));
        ASSERT_TRUE(torch::equal(own, output));
      }
    EXPECT_THAT(testing::usage_error([&] { group->all_gather_into_tensor(torch::zeros({ranks}), torch::zeros({2})); }),
                HasSubstr("all_gather_into_tensor: output has " + std::to_string(ranks) + " elements, not "));
    EXPECT_THAT(testing::usage_error(
                    [&] { group->all_gather_into_tensor(torch::zeros({ranks}), torch::zeros({1}, at::kInt)); }),
                HasSubstr("output is Float, input is Int"));
  });
}

TEST_P(MessageContract, CoalescedFormsHaveTheBitsOfSingleCalls) {
  run([](auto group) {
    const int ranks = group->size(), rank = group->rank();
    const auto make = [&](int of) {
      return std::vector<at::Tensor>{random_example(of, 12 * ranks).view({3 * ranks, 4}), example(of, ranks, at::kLong),
                                     torch::empty({0}), random_example(of, 5000 * ranks)};
    };
    const auto gathered = all_gather_coalesced(*group, make(rank));
    ASSERT_EQ(int(gathered.size()), ranks);
    for (int peer = 0; peer < ranks; ++peer)
      for (std::size_t i = 0; i < 4; ++i)
        ASSERT_TRUE(torch::equal(gathered[std::size_t(peer)][i], make(peer)[i])) << peer << ", " << i;
    std::vector<at::Tensor> outputs;
    for (const at::Tensor& input : make(rank))
      outputs.push_back(torch::zeros({input.numel() / ranks}, input.options()));
    reduce_scatter_coalesced(*group, outputs, make(rank));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const at::Tensor single = torch::zeros_like(outputs[i]);
      group->reduce_scatter(single, make(rank)[i]);
      ASSERT_TRUE(torch::equal(outputs[i], single)) << i;
    }
    EXPECT_THAT(testing::usage_error([&] { reduce_scatter_coalesced(*group, {}, make(rank)); }),
                HasSubstr("4 inputs for 0 outputs"));
  });
}

TEST_P(MessageContract, BytesAreGatheredAndScattered) {
  run([](auto group) {
    const int root = group->size() - 1;
    const auto value = [](int rank) { return std::string(std::size_t(rank * 1000), char('a' + rank)); };
    const std::vector<std::string> all = gather_bytes(*group, value(group->rank()), root);
    ASSERT_EQ(int(all.size()), group->rank() == root ? group->size() : 0);
    EXPECT_EQ(scatter_bytes(*group, all, root), value(group->rank()));
    EXPECT_THROW(gather_bytes(*group, "", group->size()), UsageError);
    try {
      group->barrier();  // else the root ends the group while others still are in what comes before
      scatter_bytes(*group, {}, root);
      ADD_FAILURE() << "nothing was scattered";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("scatter_bytes: the root needs"));
    }
  });
}

TEST_P(MessageContract, IsendAndIrecvCross) {
  if (GetParam().ranks == 1) return;
  run([](auto group) {
    AsyncCollectives async(duplicate(*group));
    const int ranks = group->size(), rank = group->rank();
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    const std::int64_t large = 2'000'000;
    for (int i = 0; i < 3; ++i) {
      const at::Tensor received = torch::zeros({large}), last = torch::zeros({1}), sum = torch::ones({1000});
      const Work sent = async.isend(example(rank, large, at::kFloat), next);
      const std::vector<Work> rest =
          async.batch_isend_irecv({irecv(received, before), isend(torch::ones({1}), next), irecv(last, before)});
      const Work reduced = async.all_reduce(sum);
      for (const Work& work : rest) work.wait(20s);
      sent.wait(20s);
      EXPECT_TRUE(torch::equal(received, example(before, large, at::kFloat)));
      EXPECT_EQ(last.item<float>(), 1);
      reduced.wait(20s);
      EXPECT_EQ(sum[999].item<float>(), float(ranks));
      EXPECT_TRUE(async.is_idle());
    }
    EXPECT_THAT(testing::usage_error([&] { (void)async.isend(torch::zeros({1}), rank); }), HasSubstr("is this rank"));
    // What fails is told by each of those under way.
    const Work one = async.irecv(torch::zeros({3}), before, 1), two = async.irecv(torch::zeros({3}), before, 2);
    const Work other = async.isend(torch::zeros({4}), next, 1);
    for (const Work& work : {one, two}) EXPECT_THROW(work.wait(20s), Error);
    EXPECT_NE(failure_of([&] { one.wait(20s); }).find("(3 x Float, tag 1)"), std::string::npos);
  });
}

}  // namespace
}  // namespace lockstep::comm
