// SyncBatchNorm on a stand-in for a device (tests/support/device/sim_device.h): the layers alone, and within both ways
// to train.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "lockstep/lockstep.h"
#include "tests/support/device/norm_cases.h"
#include "tests/support/device/sim_device.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep {
namespace {

namespace sim = testing::sim;
using support::RankKind;

constexpr int kNormSteps = 3;
constexpr std::int64_t kRowsOfARank = 4;

struct NormedNetImpl : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(8, 3));
  at::Tensor forward(const at::Tensor& x) { return last(torch::tanh(norm(first(x)))); }
};
TORCH_MODULE(NormedNet);

NormedNet normed_net(at::Device device) {
  torch::manual_seed(0);
  NormedNet net;
  net->to(device);
  return net;
}

// A process each, for the threads of autograd belong to the process.
void on_device_ranks(int ranks, const std::function<void(const std::shared_ptr<comm::Group>&, at::Device)>& body) {
  support::run_ranks(RankKind::processes, ranks, [&](auto group) {
    sim::install(2);
    body(group, sim::device(group->rank() % 2));
  });
}

support::SmallBatch rows_of_all(int step, int ranks) {
  at::Generator generator = at::detail::createCPUGenerator(std::uint64_t(step));
  return {at::randn({ranks * kRowsOfARank, 6}, generator),
          at::randint(0, 3, {ranks * kRowsOfARank}, generator, at::kLong)};
}

support::SmallBatch rows_of(int step, const comm::Group& group) {
  const support::SmallBatch all = rows_of_all(step, group.size());
  const std::int64_t first = group.rank() * kRowsOfARank;
  return {all.data.narrow(0, first, kRowsOfARank), all.target.narrow(0, first, kRowsOfARank)};
}

using NormedState = std::map<std::string, at::Tensor>;

NormedState state_on_host(const NormedNet& net) {
  NormedState state;
  for (const auto& tensors : {net->named_parameters(), net->named_buffers()})
    for (const auto& item : tensors) state[item.key()] = item.value().detach().to(at::kCPU).clone();
  return state;
}

NormedState trained_alone(int ranks) {
  NormedNet net = normed_net(at::kCPU);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < kNormSteps; ++step) {
    const support::SmallBatch batch = rows_of_all(step, ranks);
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(net(batch.data), batch.target).backward();
    optimizer.step();
  }
  return state_on_host(net);
}

// `more_of_rank_0`: steps, within join().
NormedState trained_on(const std::shared_ptr<comm::Group>& group, at::Device device, bool ours, int more_of_rank_0) {
  NormedNet net = normed_net(device);
  convert_sync_batchnorm(net, group);
  DistributedDataParallel ddp(net, group, {.name = device.is_cpu() ? "host" : "device"});
  const int steps = kNormSteps + (group->rank() == 0 ? more_of_rank_0 : 0);
  const auto backward = [&](int step) {
    const support::SmallBatch batch = rows_of(step, *group);
    const at::Tensor output = ddp(batch.data.to(device));
    torch::nn::functional::cross_entropy(output, batch.target.to(device)).backward();
  };
  const auto run = [&](const std::function<void()>& loop) {
    if (more_of_rank_0 > 0)
      ddp.join(loop);
    else
      loop();
  };
  if (ours) {
    optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
    run([&] {
      for (int step = 0; step < steps; ++step) {
        backward(step);
        optimizer.step();
      }
    });
    return state_on_host(net);
  }
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  run([&] {
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      backward(step);
      optimizer.step();
    }
  });
  return state_on_host(net);
}

void expect_same_training(const NormedState& found, const NormedState& wanted, const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  for (const auto& [name, tensor] : wanted)
    EXPECT_TRUE(torch::allclose(found.at(name), tensor, 1e-4, 1e-5)) << what << ", " << name;
}

TEST(SyncBatchNormOnADevice, IsBatchNormOnTheBatchesOfAllRanks) {
  for (const int ranks : {2, 3}) on_device_ranks(ranks, support::expect_norm_of_the_whole_batch);
}

TEST(SyncBatchNormOnADevice, OfFewValuesIsTheHosts) { on_device_ranks(2, support::expect_norm_of_few_values); }

TEST(SyncBatchNormOnADevice, TrainsLikeOneProcess) {
  on_device_ranks(2, [](const auto& group, at::Device device) {
    const NormedState alone = trained_alone(group->size());
    for (const bool ours : {true, false}) {
      const NormedState found = trained_on(group, device, ours, 0);
      expect_same_training(found, alone, ours ? "lockstep::optim" : "torch::optim");
      for (const at::Tensor& theirs : group->all_gather(found.at("norm.running_var")))
        EXPECT_TRUE(torch::equal(theirs, found.at("norm.running_var"))) << "statistics are everybody's";
    }
  });
}

TEST(SyncBatchNormOnADevice, ARankWithoutInputsTakesPart) {
  on_device_ranks(2, [](const auto& group, at::Device device) {
    for (const bool ours : {true, false}) {
      const NormedState found = trained_on(group, device, ours, 2);
      expect_same_training(found, trained_on(group, at::kCPU, ours, 2), ours ? "lockstep::optim" : "torch::optim");
    }
  });
}

// On a real device the streams would run beside each other.
TEST(SyncBatchNormOnADevice, NothingIsReadBeforeItIsThere) {
  on_device_ranks(2, [](const auto& group, at::Device device) {
    trained_on(group, device, /*ours=*/false, 0);
    const sim::Recording recording;
    trained_on(group, device, /*ours=*/false, 0);
    EXPECT_GT(recording.history().size(), 100u);
    EXPECT_TRUE(recording.report().faults.empty()) << recording.report().text();
  });
}

TEST(SyncBatchNormOnADevice, OneShardForEachRankAndOneDeviceForAllOfIt) {
  on_device_ranks(2, [](const auto& group, at::Device device) {
    NormedNet net = normed_net(device);
    convert_sync_batchnorm(net, group);
    EXPECT_THAT(support::what_of([&] { DistributedDataParallel(net, group, {.shards = 4}); }),
                ::testing::HasSubstr("4 shards on 2 ranks, but SyncBatchNorm ('norm') needs one shard per rank"));
    SyncBatchNorm norm(torch::nn::BatchNormOptions(6), group);
    norm->to(device);
    const std::string error = support::what_of([&] {
      const at::Tensor x = torch::ones({4, 6});
      norm->forward(group->rank() == 1 ? x : x.to(device));
    });
    EXPECT_THAT(error, ::testing::HasSubstr("rank 1 has a batch of a tensor on cpu, the layer is on sim:1"));
  });
}

}  // namespace
}  // namespace lockstep
