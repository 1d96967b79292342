// What a step of a tiny model costs beside its arithmetic: in the steady state nothing of ours allocates memory, but
// for the callback at the end of backward, or calls the kernel. A step of such a model takes less time than a dozen
// system calls.
//
// libtorch's own allocations (tensors, autograd nodes) are there with any engine: they are measured on the bare module
// and printed.

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <torch/nn.h>

#include <iostream>
#include <set>

#include "lockstep/lockstep.h"
#include "tests/support/allocations.h"
#include "tests/support/ranks.h"
#include "tests/support/system_calls.h"

namespace lockstep {
namespace {

constexpr int kWarmUp = 50;
constexpr int kSteps = 1000;
constexpr int kOfTheCallback = 2;  // allocations by which autograd tells that a backward was whole (BackwardWatch)
const std::set<long> kWaits{SYS_futex, SYS_sched_yield, SYS_poll};

torch::nn::Sequential mlp() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 10));
}

struct Samples {
  at::Tensor data = torch::randn({32, 64});
  at::Tensor target = torch::randint(10, {32});
};

void forward_and_backward(auto& model, const Samples& samples) {
  torch::nn::functional::cross_entropy(model(samples.data), samples.target).backward();
}

// Allocations of kSteps steps of the module alone.
std::uint64_t allocations_of_libtorch() {
  torch::nn::Sequential model = mlp();
  const Samples samples;
  const auto forward = [&](const at::Tensor& data) { return model->forward(data); };
  const auto parameters = model->parameters();
  const auto step = [&] {
    forward_and_backward(forward, samples);
    for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
  };
  for (int i = 0; i < kWarmUp; ++i) step();
  const std::uint64_t before = support::allocations_of_this_thread();
  for (int i = 0; i < kSteps; ++i) step();
  return support::allocations_of_this_thread() - before;
}

// The same under the engine.
class Job {
 public:
  explicit Job(std::shared_ptr<comm::Group> group) : ddp_(mlp(), std::move(group)), optimizer_(ddp_, {.lr = 1e-3}) {
    steps(kWarmUp);
  }
  void step() {
    forward_and_backward(ddp_, samples_);
    const std::uint64_t before = support::allocations_of_this_thread();
    optimizer_.step();
    in_update_ += support::allocations_of_this_thread() - before;
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  std::uint64_t allocations_in_update() const { return in_update_; }

 private:
  Samples samples_;
  DistributedDataParallel<torch::nn::Sequential> ddp_;
  optim::Adam optimizer_;
  std::uint64_t in_update_ = 0;
};

class SteadyState : public testing::TestWithParam<int> {
 protected:
  SteadyState() { memory::use_caching_allocator(); }
  support::RankKind kind() const { return GetParam() == 1 ? support::RankKind::single : support::RankKind::processes; }
};

TEST_P(SteadyState, OurPartOfAStepAllocatesNothing) {
  support::run_ranks(kind(), GetParam(), [](std::shared_ptr<comm::Group> group) {
    const std::uint64_t libtorch = allocations_of_libtorch();
    const bool speaks = group->rank() == 0;
    Job job(std::move(group));
    const std::uint64_t in_update_before = job.allocations_in_update();
    const std::uint64_t before = support::allocations_of_this_thread();
    job.steps(kSteps);
    const std::uint64_t all = support::allocations_of_this_thread() - before;
    if (speaks)
      std::cout << "allocations per step: " << double(libtorch) / kSteps << " of libtorch alone, "
                << double(all) / kSteps << " under the engine" << std::endl;
    EXPECT_GT(libtorch, 0u) << "nothing is counted";
    EXPECT_EQ(job.allocations_in_update(), in_update_before);
    EXPECT_LE(all, libtorch + kSteps * kOfTheCallback);
  });
}

TEST_P(SteadyState, AStepCallsTheKernelOnlyToWaitForAPeer) {
  if (!support::system_calls_of([] {})) GTEST_SKIP() << "no ptrace here";
  support::run_ranks(kind(), GetParam(), [](std::shared_ptr<comm::Group> group) {
    const bool alone = group->size() == 1;
    const bool watched = group->rank() == 0;
    Job job(std::move(group));
    if (!watched) return job.steps(kSteps);
    auto calls = support::system_calls_of([&] { job.steps(kSteps); });
    ASSERT_TRUE(calls);
    std::cout << "system calls of " << kSteps << " steps: " << support::to_string(*calls) << std::endl;
    // Waiting: give the core away, sleep, after a while look whether the peer still lives.
    if (!alone) std::erase_if(*calls, [](const auto& call) { return kWaits.contains(call.first); });
    EXPECT_TRUE(calls->empty()) << support::to_string(*calls);
  });
}

// Would the tests above notice?
TEST(SteadyStateCounters, SeeAnAllocationAndASystemCall) {
  const std::uint64_t before = support::allocations_of_this_thread();
  const std::vector<int> numbers(100);
  EXPECT_EQ(support::allocations_of_this_thread() - before, 1u) << numbers.size();
  const auto calls = support::system_calls_of([] { syscall(SYS_getuid); });
  if (!calls) GTEST_SKIP() << "no ptrace here";
  EXPECT_EQ(*calls, (std::map<long, int>{{SYS_getuid, 1}}));
}

INSTANTIATE_TEST_SUITE_P(Ranks, SteadyState, testing::Values(1, 2));

}  // namespace
}  // namespace lockstep
