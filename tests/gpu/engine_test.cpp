// The engine with a model on a GPU, of which one is enough: all ranks compute on it. Each rank is a process of its own,
// for CUDA that was used before a fork is of no use behind it.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <string>
#include <vector>

#include "lockstep/base/generation.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/device_loader.h"
#include "lockstep/data/normalize_pixels.h"
#include "lockstep/data/tensor_batches.h"
#include "lockstep/device/choice.h"
#include "lockstep/device/deterministic.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

using support::RankKind;
using support::SharedText;
using support::SmallJob;

at::Device gpu() {
  const at::Device device = device::choose("cuda:0", 0);
  device::compute_deterministically();
  return device;
}

class EngineOnAGpu : public testing::Test {
 protected:
  void SetUp() override {
    SharedText why;
    support::run_ranks(RankKind::processes, 1, [&](const auto&) { why.set(device::why_none(device::find_cuda())); });
    if (!why.get().empty()) GTEST_SKIP() << why.get();
  }
};

std::string state_of(SmallJob job, int ranks) {
  SharedText state;
  support::run_ranks(RankKind::processes, ranks, [&](auto group) {
    job.device = gpu();
    job.after_step = [&](parallel::Engine& ddp) {
      if (group->rank() == 0) state.set(ddp.state().hash());
    };
    support::run_small_job(group, job);
  });
  return state.get();
}

TEST_F(EngineOnAGpu, HasTheSameBitsForAnyNumberOfRanks) {
  for (const Amp amp : {Amp::none, Amp::bf16, Amp::fp16}) {
    SmallJob job = support::disturbed_job(amp, 6);
    job.ballast = 0;
    const std::string alone = state_of(job, 1);
    EXPECT_NE(alone, "");
    for (const int ranks : {1, 2, 3}) EXPECT_EQ(state_of(job, ranks), alone) << ranks << " ranks, amp " << int(amp);
  }
}

// Without what draws random numbers, which a GPU draws otherwise.
std::vector<at::Tensor> trained_on(at::Device device) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(20, 300), torch::nn::BatchNorm1d(300), torch::nn::ReLU(),
                              torch::nn::Linear(300, 5));
  model->to(device);
  DistributedDataParallel ddp(model, std::make_shared<comm::SingleGroup>());
  optim::SGD optimizer(ddp, {.lr = 0.05, .momentum = 0.9});  // Adam makes steps of gradients that are rounding alone
  for (std::uint64_t step = 1; step <= 20; ++step) {
    const support::SmallBatch batch = support::small_batch(step, {0, 8});
    const at::Tensor output = ddp(batch.data);
    torch::nn::functional::cross_entropy(output, batch.target.to(device)).backward();
    optimizer.step();
  }
  std::vector<at::Tensor> weights;
  for (const auto& [name, tensor] : ddp.state_dict()) weights.push_back(tensor.to(at::kDouble).clone());
  return weights;
}

TEST_F(EngineOnAGpu, TrainsAsTheCpuDoes) {
  support::run_ranks(RankKind::processes, 1, [&](const auto&) {
    const auto there = trained_on(gpu());
    const auto here = trained_on(at::kCPU);
    ASSERT_EQ(there.size(), here.size());
    for (std::size_t i = 0; i < here.size(); ++i)
      EXPECT_TRUE(torch::allclose(there[i], here[i], 1e-3, 1e-3)) << i << ": " << (there[i] - here[i]).abs().max();
  });
}

// In bits: what a batch holds does not depend on how it came to the device.
std::vector<double> losses_of_a_loader(at::Device where) {
  const at::Device device = gpu();
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(2000, 300), torch::nn::ReLU(), torch::nn::Linear(300, 5));
  const at::Tensor x = torch::randn({1000, 2000}), y = torch::randint(0, 5, {1000}, torch::kLong);
  model->to(device);
  DistributedDataParallel ddp(model, std::make_shared<comm::SingleGroup>());
  data::DataLoader loader(
      data::tensors(x, y), data::Part{},
      {.batch_size = 96, .shuffle = true, .seed = 3, .num_workers = 3, .total_batches = 44, .device = where});
  optim::SGD optimizer(ddp, {.lr = 0.01, .momentum = 0.9});
  std::vector<double> losses;
  for (int epoch = 0; epoch < 4; ++epoch) {
    loader.set_epoch(epoch);
    for (auto& batch : loader) {
      if (where != at::Device(at::kCPU)) {
        EXPECT_EQ(batch.data.device(), device);
      }
      const at::Tensor loss = torch::nn::functional::cross_entropy(ddp(batch.data), batch.target.to(device));
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<double>());
    }
  }
  return losses;
}

TEST_F(EngineOnAGpu, TrainsFromALoaderOnTheGpuAsFromOneOnTheHost) {
  support::run_ranks(RankKind::processes, 1, [&](const auto&) {
    const std::vector<double> expected = losses_of_a_loader(at::kCPU);
    EXPECT_EQ(expected.size(), 44u);
    EXPECT_EQ(losses_of_a_loader(gpu()), expected);
  });
}

TEST_F(EngineOnAGpu, PixelsBecomeTheHostsNumbers) {
  support::run_ranks(RankKind::processes, 1, [&](const auto&) {
    const at::Device device = gpu();
    const at::Tensor pixels = torch::randint(0, 256, {16, 3, 64, 64}, torch::kByte);
    for (const auto layout : {data::PixelLayout::planes, data::PixelLayout::channels_last})
      for (const auto type : {data::PixelType::float32, data::PixelType::bfloat16}) {
        const data::NormalizeOptions options{
            .mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}, .layout = layout, .type = type};
        const at::Tensor expected = data::NormalizePixels(options, at::kCPU)(pixels);
        const at::Tensor found = data::NormalizePixels(options, device)(pixels.to(device));
        EXPECT_EQ(found.strides(), expected.strides());
        EXPECT_TRUE(at::equal(found.cpu(), expected));
      }
  });
}

// Bytes that came too late, or memory that was given out again too early, would show in a sum.
TEST_F(EngineOnAGpu, BatchesAreWholeWhileTheDeviceIsBehind) {
  support::run_ranks(RankKind::processes, 1, [&](const auto&) {
    const at::Device device = gpu();
    const auto source = [](std::int64_t number) {
      return data::Batch{torch::full({1 << 22}, double(number)), torch::full({8}, number, torch::kLong)};
    };
    data::DeviceLoader loader(source, 0, 60, device, {.workers = 4, .prefetch = 8});
    const at::Tensor work = torch::rand({2048, 2048}, device);
    std::vector<at::Tensor> found;
    while (const auto batch = loader.next()) {
      at::Tensor busy = work;
      for (int i = 0; i < 8; ++i) busy = busy.matmul(work).mul(1e-3);  // the copies are ahead of this
      found.push_back(at::stack({batch->data.min(), batch->data.max(), batch->target.max().to(at::kFloat)}));
    }
    ASSERT_EQ(found.size(), 60u);
    for (std::size_t number = 0; number < found.size(); ++number)
      EXPECT_TRUE(at::equal(found[number].cpu(), torch::full({3}, double(number)))) << number << ": " << found[number];
  });
}

TEST_F(EngineOnAGpu, AKilledRankLeavesTheCommittedState) {
  const SmallJob undisturbed = support::disturbed_job(Amp::none, 8);
  const std::string expected = state_of(undisturbed, 1);
  base::Segment segment = base::Segment::create(2);
  const auto pids = support::start_ranks(segment, [&](auto group) {
    SmallJob job = support::disturbed_job(Amp::none, 8);
    job.device = gpu();
    job.after_step = [&](parallel::Engine& engine) {
      if (group->rank() == 1 && engine.steps() == 5) kill(getpid(), SIGKILL);
    };
    try {
      support::run_small_job(group, job);
    } catch (const GroupAborted&) {
      return support::kAbortedCode;
    }
    return 0;
  });
  for (const pid_t pid : pids) EXPECT_TRUE(support::wait_for(pid));
  segment = base::next_generation(std::move(segment), 3);
  EXPECT_EQ(base::committed(segment.control().regions[0]).value_or(base::Commit{}).step, 5u);
  SharedText state;
  for (const pid_t pid : support::start_ranks(segment, [&](auto group) {
         SmallJob job = support::disturbed_job(Amp::none, 8);
         job.device = gpu();
         job.after_step = [&](parallel::Engine& engine) {
           if (group->rank() == 0) state.set(engine.state().hash());
         };
         support::run_small_job(group, job);
         return 0;
       }))
    EXPECT_TRUE(support::exited_with(support::wait_for(pid), 0));
  EXPECT_EQ(state.get(), expected);
}

}  // namespace
}  // namespace lockstep
