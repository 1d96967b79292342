#pragma once

// The suite that every Group must pass: its fixture, and tensors whose sums are known.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/ranks.h"
#include "tests/support/tally.h"

namespace lockstep::comm {

using support::RankKind;

struct Ranks {
  RankKind kind;
  int ranks;
  /// Of RankKind::nodes, where empty: one each; of hierarchical; and of gloo, whose groups have two levels then.
  std::vector<int> per_node = {};
};

class GroupContract : public ::testing::TestWithParam<Ranks> {
 protected:
  void SetUp() override {
    const std::string file = ::testing::UnitTest::GetInstance()->current_test_info()->file();
    if (!is_over_network()) return;
    if (file.ends_with("shared_tensors_test.cpp") || file.ends_with("/node_group_test.cpp"))
      GTEST_SKIP() << "nodes share no memory";
    const bool is_large = is_over_network() && GetParam().kind != RankKind::mpi && GetParam().ranks > 4;
    if (is_large && !file.ends_with("/group_test.cpp") && !file.ends_with("/collectives_test.cpp"))
      GTEST_SKIP() << "of more than four ranks over a network, their collectives will do";
    // Its backend has one order for all messages of two ranks, whatever their tags.
    if (GetParam().kind == RankKind::c10d && !file.ends_with("/group_test.cpp"))
      GTEST_SKIP() << "groups of some ranks need a backend that tells tags apart, as Gloo does";
    const bool shows_streams = file.ends_with("/group_test.cpp") || file.ends_with("/new_group_test.cpp") ||
                               file.ends_with("/point_to_point_test.cpp");
    if (GetParam().kind == RankKind::gloo && !shows_streams)
      GTEST_SKIP() << "of what is made of messages, groups and collectives others show enough";
  }

  void run(const support::RankBody& body, support::RankOptions options = {}) {
    const auto& [kind, ranks, per_node] = GetParam();
    const bool is_gloo = kind == RankKind::gloo;
    if (kind == RankKind::hierarchical || (is_gloo && !per_node.empty())) options.group = hierarchical_group;
    if (per_node.empty())
      support::run_ranks(kind, ranks, body, options);
    else
      support::run_nodes(per_node, body, is_gloo ? support::over_gloo(options) : options);
  }

  static bool is_over_network() {
    const RankKind kind = GetParam().kind;
    return kind == RankKind::nodes || kind == RankKind::mpi || kind == RankKind::hierarchical ||
           kind == RankKind::gloo || kind == RankKind::c10d;
  }

  // Whether a rank may die and the others live on.
  static bool has_processes() {
    const RankKind kind = GetParam().kind;
    return kind != RankKind::single && kind != RankKind::threads && kind != RankKind::wrapped && kind != RankKind::mpi;
  }

  // What each rank is told by what it throws; another Error than UsageError.
  template <class Body>
  static std::string failure_of(Body&& body) {
    try {
      body();
    } catch (const UsageError& error) {
      ADD_FAILURE() << error.what();
    } catch (const Error& error) {
      return error.what();
    }
    return "no failure";
  }

  // All ranks call it, once in a test, before a failure on purpose: between nodes its news may come before what another
  // rank owes this one. Who fails does so when the others wait for it.
  void let_all_arrive(const comm::Group& group, bool fails) const {
    using std::chrono::milliseconds;
    if (!is_over_network()) return;
    const bool shares_memory = GetParam().kind != RankKind::mpi;
    if (shares_memory) {
      arrived_.add();
      EXPECT_TRUE(arrived_.wait_for(group.size())) << "a rank did not come as far as that";
    }
    if (fails) std::this_thread::sleep_for(shares_memory ? milliseconds(50) : milliseconds(500));
  }

  // Rank 1 goes after its first all-reduce of the tensor that it makes; the others learn in one of the next who is
  // gone, and then do what is left to them.
  void lose_rank_one(const std::function<at::Tensor(comm::Group&)>& make,
                     const std::function<void(comm::Group&, const at::Tensor&)>& afterwards) {
    const auto body = [&](auto group) {
      const at::Tensor tensor = make(*group);
      group->all_reduce(tensor);
      this->let_all_arrive(*group, group->rank() == 1);
      if (group->rank() == 1) {
        if (has_processes()) raise(SIGKILL);
        return;
      }
      try {
        for (int i = 0; i < 3; ++i) group->all_reduce(tensor);
        ADD_FAILURE() << "a collective ended without rank 1";
      } catch (const GroupAborted& error) {
        EXPECT_EQ(error.failure().rank, 1) << error.what();
      }
      afterwards(*group, tensor);
    };
    run(body, {.allowed_signal = SIGKILL});
  }

 private:
  const testing::Tally arrived_;
};

// Values that tell ranks and places apart and add up exactly in every dtype.
inline at::Tensor example(int rank, std::int64_t elements, at::ScalarType dtype) {
  return (torch::arange(elements, torch::kLong).remainder(7) + rank).to(dtype);
}

inline const at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kChar,
                                         at::kByte,  at::kInt,    at::kLong,     at::kBool};
inline const ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product};

// What torch's own operators make of two ranks' tensors.
inline at::Tensor combine(ReduceOp op, const at::Tensor& a, const at::Tensor& b) {
  switch (op) {
    case ReduceOp::min:
      return torch::minimum(a, b);
    case ReduceOp::max:
      return torch::maximum(a, b);
    case ReduceOp::product:
      return a * b;
    default:
      return a + b;
  }
}

inline at::Tensor combine_all(ReduceOp op, int ranks, const std::function<at::Tensor(int)>& tensor_of) {
  at::Tensor all = tensor_of(0);
  for (int rank = 1; rank < ranks; ++rank) all = combine(op, all, tensor_of(rank));
  return all;
}

// Numbers of all magnitudes, the same for a rank each time.
inline at::Tensor random_example(int rank, std::int64_t elements) {
  return torch::rand({elements}, torch::make_generator<at::CPUGeneratorImpl>(std::uint64_t(rank + 1))) * 1e3 - 500;
}

}  // namespace lockstep::comm
