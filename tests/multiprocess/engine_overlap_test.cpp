// Gradients that go to other nodes in several waves while backward goes on: the bits of one node, whatever comes behind
// its wave, and the name of whoever ends among waves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/room.h"
#include "lockstep/comm/network/hierarchical_group.h"
#include "lockstep/comm/network/wire.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using namespace std::chrono_literals;
using support::disturbed_job;
using support::hash_of;
using support::nodes_hash;
using support::RankKind;
using support::run_nodes;
using support::run_ranks;
using support::SharedText;
using support::SmallJob;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kSmallWaves = 1024;

// SmallNet has six: of the last layer, of the one in front of it, and of each parameter in front of that.
SmallJob in_waves(SmallJob job) {
  job.overlap_bytes = kSmallWaves;
  return job;
}

TEST(Overlap, HasTheBitsOfOne) {
  for (const auto& optimizer : {support::small_sgd(), support::small_adam()}) {
    const SmallJob job{.shards = 4, .steps = 4, .optimizer = optimizer};
    const std::string one = hash_of(1, job);
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {3, 1}, {1, 2}, {1, 1, 1}})
      EXPECT_EQ(nodes_hash(nodes, in_waves(job)), one) << ::testing::PrintToString(nodes);
  }
}

TEST(Overlap, HasTheBitsOfOneWithManyShards) {
  const SmallJob job{.shards = 9, .steps = 3};
  EXPECT_EQ(nodes_hash({1, 1, 1}, in_waves(job)), hash_of(1, job));
}

TEST(Overlap, HasTheBitsOfOneWithAllOptions) {
  for (const Amp amp : {Amp::none, Amp::bf16}) {
    const SmallJob job = disturbed_job(amp, 6);
    EXPECT_EQ(nodes_hash({2, 1}, in_waves(job)), hash_of(1, job)) << int(amp);
  }
}

// Sums of nodes, too, are made of each element alone.
TEST(Overlap, HasTheBitsOfOneWaveWhereNodesReduceFast) {
  for (const auto& [nodes, shards] : std::vector<std::pair<std::vector<int>, int>>{{{3, 1}, 4}, {{1, 1, 1}, 9}}) {
    SmallJob job{.shards = shards, .steps = 3};
    job.reduction = Reduction::fast;
    EXPECT_EQ(nodes_hash(nodes, in_waves(job)), nodes_hash(nodes, job)) << ::testing::PrintToString(nodes);
  }
}

TEST(Overlap, IsToldAtTheStart) {
  ::testing::internal::CaptureStderr();
  nodes_hash({1, 1}, in_waves({.shards = 2, .steps = 1}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(", in 6 waves\n"));
}

// They would wait for messages that nobody sends.
TEST(Overlap, OfOtherBytesOnARankIsRefusedOnAll) {
  run_nodes({1, 1}, [](auto group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group, {.overlap_bytes = group->rank() == 0 ? std::size_t(0) : kSmallWaves});
    EXPECT_THAT(support::what_of([&] { optim::SGD optimizer(ddp, {.lr = 0.1}); }),
                AllOf(HasSubstr("rank 1 "),
                      HasSubstr("another seed, overlap_bytes, reduction, compression or zero1 than rank 0")));
  });
}

// Returns when ready() is true, for which it has a minute.
void look_until(const std::function<bool()>& ready) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!ready() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(ready());
}

// ---- while backward goes on

// With overlap_bytes of 1 it has four waves.
struct WatchedNetImpl : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(20, 32));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(32, 5));
  std::function<void()> between = [] {};  // runs when `second` has its gradients and `first` has none
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor middle = torch::relu(first(x));
    middle.register_hook([this](const at::Tensor& gradient) {
      between();
      return gradient;
    });
    return second(middle);
  }
};
TORCH_MODULE(WatchedNet);

TEST(Overlap, BeginsWhileBackwardComputes) {
  run_nodes({2, 1}, [](auto group) {
    WatchedNet model;
    DistributedDataParallel ddp(model, group, {.overlap_bytes = 1});
    optim::SGD optimizer(ddp, {.lr = 0.1});
    const auto waves = [&] { return ddp.debug().logging_data().waves; };
    const auto backward = [&] { ddp(torch::ones({2, 20})).sum().backward(); };
    backward();
    optimizer.step();
    EXPECT_EQ(waves().count, 4);
    EXPECT_EQ(waves().early, 0) << "nobody knows yet how many gradients come";
    model->between = [&] { look_until([&] { return waves().carried == 2; }); };
    backward();
    model->between = [] {};
    optimizer.step();
    EXPECT_EQ(waves().early, 4);
    EXPECT_EQ(waves().carried, 0) << "of the next step";
    EXPECT_EQ(ddp.steps(), 2u);
  });
}

// What a step does.
enum class Twist { none, second_pass, zero_grad, broken, one_more, refused };

struct Course {
  std::string hash;
  std::vector<bool> again;  // by step: whether all was exchanged once more
  std::vector<int> early;   // by step
};

Course run_course(const std::shared_ptr<comm::Group>& group, const std::vector<Twist>& steps) {
  torch::manual_seed(1);
  WatchedNet model;
  const bool sends = group->wire() != nullptr;
  DistributedDataParallel ddp(model, group, {.shards = 3, .overlap_bytes = sends ? 1 : std::size_t(2) << 20});
  optim::SGD optimizer(ddp, {.lr = 0.05, .momentum = 0.9});
  const auto sent_outside = [&] { return sends ? group->wire()->bytes_sent() : 0; };
  std::uint64_t batches = 0;
  const auto loss_of = [&](const at::Tensor& data, const at::Tensor& target) {
    return torch::nn::functional::cross_entropy(ddp(data), target);
  };
  const auto backward = [&](double scale_of_the_first = 1) {
    for (auto& shard : ddp.shards(support::small_batch(++batches, ddp.local_shards())))
      (loss_of(shard.data, shard.target) * (shard.index == 0 ? scale_of_the_first : 1)).backward();
  };
  Course course;
  for (const Twist twist : steps) {
    if (twist == Twist::broken) {
      model->between = [] { throw std::runtime_error("mine"); };
      EXPECT_THROW(backward(), std::runtime_error);
      model->between = [] {};
      optimizer.zero_grad();
    }
    if (twist == Twist::refused) {
      backward(std::numeric_limits<double>::infinity());
      EXPECT_THROW(optimizer.step({.error_if_nonfinite = true}), Error);
      optimizer.zero_grad();
    }
    backward();
    if (twist == Twist::zero_grad) optimizer.zero_grad();
    if (twist == Twist::zero_grad || twist == Twist::second_pass) backward();
    if (twist == Twist::one_more && ddp.local_shards().first == 0) {
      ddp.begin_shard(0);
      const support::SmallBatch batch = support::small_batch(1000 + batches, {0, 1});
      loss_of(batch.data, batch.target).backward();
    }
    const std::uint64_t outside = sent_outside(), before = ddp.debug().logging_data().waves.sent_bytes;
    optimizer.step();
    const WaveData told = ddp.debug().logging_data().waves;
    course.again.push_back(sent_outside() > outside);
    if (course.again.back()) {
      EXPECT_EQ(sent_outside() - outside, told.sent_bytes - before);
    }
    course.early.push_back(told.early);
  }
  course.hash = ddp.weights_hash();
  return course;
}

// A wave goes out as the last step tells; what comes behind it makes the step exchange again, and the next two wait for
// step().
TEST(Overlap, SendsAgainWhatChanges) {
  using enum Twist;
  const std::vector<Twist> steps{none, none,   second_pass, none, none, none,     zero_grad, none, none,
                                 none, broken, none,        none, none, one_more, none,      none, refused};
  std::string one;
  run_ranks(RankKind::single, 1, [&](auto group) { one = run_course(group, steps).hash; });
  run_nodes({2, 1}, [&](auto group) {
    const Course course = run_course(group, steps);
    EXPECT_EQ(course.hash, one);
    std::vector<bool> again(steps.size());
    for (const std::size_t step : {2, 6, 10, 14}) again[step] = true;
    EXPECT_EQ(course.again, again);
    EXPECT_EQ(course.early, (std::vector<int>{0, 4, 4, 0, 0, 4, 4, 0, 0, 4, 4, 0, 0, 4, 4, 0, 0, 4}));
  });
}

std::string hash_of_join(std::size_t overlap_bytes) {
  SharedText hash;
  run_nodes({2, 1}, [&](auto group) {
    torch::manual_seed(1);
    WatchedNet model;
    DistributedDataParallel ddp(model, group, {.overlap_bytes = overlap_bytes});
    optim::SGD optimizer(ddp, {.lr = 0.1});
    ddp.join([&] {
      for (int input = 0; input < 4 - group->rank(); ++input) {
        ddp(torch::full({2, 20}, double(input + 1))).sum().backward();
        optimizer.step();
      }
    });
    EXPECT_EQ(ddp.steps(), 4u);
    const std::string mine = ddp.weights_hash();
    if (group->rank() == 0) hash.set(mine);
    for (const std::string& theirs : comm::all_gather_bytes(*group, mine)) EXPECT_EQ(theirs, mine);
  });
  return hash.get();
}

TEST(Overlap, GoesOnWithoutTheInputsOfARank) {
  const std::string whole = hash_of_join(0);
  EXPECT_EQ(hash_of_join(1), whole);
  EXPECT_NE(whole, "");
}

// Those with inputs left are in their third backward when they hear of it: nobody would send what waves of it wait for.
TEST(Overlap, LeavesNothingUnderWayWhereJoinEndsEarly) {
  run_nodes({2, 1}, [](auto group) {
    {
      WatchedNet model;
      DistributedDataParallel ddp(model, group, {.overlap_bytes = 1});
      optim::SGD optimizer(ddp, {.lr = 0.1});
      const auto loop = [&] {
        for (int input = 0; input < 4 - group->rank(); ++input) {
          ddp(torch::ones({2, 20})).sum().backward();
          optimizer.step();
        }
      };
      EXPECT_THAT(support::what_of([&] { ddp.join(loop, {.throw_on_early_termination = true}); }),
                  HasSubstr("rank 2 has no more inputs"));
      EXPECT_EQ(ddp.steps(), 2u);
    }
    group->barrier();
  });
}

// Behind a step of one model, when another one's waves are under way, which rank 1 has not: they are nobody's failure.
TEST(Overlap, MakesRoomAmongTheWavesOfAnotherModel) {
  run_nodes({2, 1}, [](auto group) {
    base::ControlPage& page = group->node().member.page();
    const auto train = [&] {
      WatchedNet model, other;
      DistributedDataParallel one(model, group, {.name = "one", .overlap_bytes = 1}),
          two(other, group, {.name = "two", .overlap_bytes = 1});
      optim::SGD first(one, {.lr = 0.1}), second(two, {.lr = 0.1});
      for (int step = 1; step <= 3; ++step) {
        if (step == 3 && group->rank() == 2) {
          EXPECT_TRUE(base::ask_for_room(page));
        }
        one(torch::ones({2, 20})).sum().backward();
        if (step < 3 || group->rank() != 1) two(torch::ones({2, 20})).sum().backward();
        first.step();
        second.step();
      }
    };
    try {
      train();
      ADD_FAILURE() << "rank " << group->rank() << " went on";
    } catch (const GroupAborted& aborted) {
      EXPECT_EQ(aborted.failure().exit_code, kExitStopped) << aborted.what();
    }
    EXPECT_TRUE(base::has_made_room(page));
    EXPECT_EQ(base::committed(page.regions[0])->step, 3u);
    EXPECT_EQ(base::committed(page.regions[1])->step, 2u);
  });
}

// Waves have a wire of their own, on which nobody would hear of it. In a group of two levels it says nothing to other
// nodes before those beside it have come.
TEST(Overlap, NamesWhoIsInAnotherCollective) {
  for (const bool has_levels : {false, true})
    for (const int other : {0, 1, 2}) {
      SCOPED_TRACE(std::to_string(other) + (has_levels ? ", two levels" : ", one level"));
      support::RankOptions options;
      options.group = has_levels ? comm::hierarchical_group : comm::flat_group;
      const auto body = [&](const std::shared_ptr<comm::Group>& group) {
        WatchedNet model;
        DistributedDataParallel ddp(model, group, {.overlap_bytes = 1});
        optim::SGD optimizer(ddp, {.lr = 0.1});
        const std::string said = support::what_of([&] {
          for (int step = 1; step <= 3; ++step) {
            ddp(torch::ones({2, 20})).sum().backward();
            if (step == 3 && group->rank() == other)
              group->barrier();
            else
              optimizer.step();
          }
        });
        EXPECT_THAT(said, HasSubstr("rank " + std::to_string(other) + " calls barrier()"));
        EXPECT_EQ(ddp.steps(), 2u);
      };
      run_nodes({2, 1}, body, options);
    }
}

// ---- a rank that ends, or is late, when two of its four waves are on their way

void ends_between(const std::vector<int>& nodes, int victim, std::chrono::milliseconds timeout,
                  const std::function<void(comm::Group&)>& end) {
  run_nodes(nodes,
            [&](auto group) {
              WatchedNet model;
              DistributedDataParallel ddp(model, group, {.overlap_bytes = 1});
              optim::SGD optimizer(ddp, {.lr = 0.1});
              const auto step = [&] {
                ddp(torch::ones({2, 20})).sum().backward();
                optimizer.step();
              };
              step();
              step();
              if (group->rank() == victim) model->between = [&] { end(*group); };
              try {
                step();
                ADD_FAILURE() << "rank " << group->rank() << " went on";
              } catch (const GroupAborted& aborted) {
                EXPECT_EQ(aborted.failure().rank, victim) << aborted.what();
              } catch (const std::runtime_error& error) {
                EXPECT_EQ(group->rank(), victim) << error.what();
              }
            },
            {.timeout = timeout, .allowed_signal = SIGKILL});
}

TEST(Overlap, NamesWhoIsKilledAmongWaves) {
  for (const int victim : {0, 1, 3}) {
    SCOPED_TRACE(victim);
    ends_between({3, 1}, victim, 20s, [](comm::Group&) { raise(SIGKILL); });
  }
}

TEST(Overlap, NamesWhoLeavesAmongWaves) {
  for (const int victim : {0, 3}) {
    SCOPED_TRACE(victim);
    ends_between({3, 1}, victim, 20s, [](comm::Group&) { throw std::runtime_error("mine"); });
  }
}

// And nobody beside it on its node, nor who waits there for one that waits abroad.
TEST(Overlap, NamesWhoIsLateAmongWaves) {
  for (const int victim : {0, 3}) {
    SCOPED_TRACE(victim);
    ends_between({3, 1}, victim, 3s, [](comm::Group& group) {
      look_until([&] {
        group.wire()->listen();
        return !support::what_of([&] { group.node().member.check_abort(); }).empty();
      });
    });
  }
}

}  // namespace
}  // namespace lockstep::parallel
