// Groups and the classic path on a stand-in for a device (tests/support/device/sim_device.h): what is to be read, and
// what the device would have read too early.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "lockstep/checkpoint.h"
#include "lockstep/lockstep.h"
#include "lockstep/state/hash.h"
#include "tests/support/device/comm_cases.h"
#include "tests/support/device/sim_device.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using comm::ReduceOp;
using support::ClassicJob;
using support::distance;
using support::RankKind;
using support::run_ranks;
using support::train_classic;
using ::testing::HasSubstr;
namespace sim = lockstep::testing::sim;

constexpr int kDevices = 2;

// A process each, for the threads of autograd belong to the process.
void on_ranks(int ranks, const std::function<void(const std::shared_ptr<comm::Group>&, at::Device)>& body) {
  run_ranks(RankKind::processes, ranks, [&](auto group) {
    sim::install(kDevices);
    body(group, sim::device(group->rank() % kDevices));
  });
}

class DeviceGroups : public ::testing::TestWithParam<std::pair<RankKind, int>> {};

TEST_P(DeviceGroups, GiveWhatTheyGiveOnTheHost) {
  const auto [kind, ranks] = GetParam();
  run_ranks(kind, ranks, [](auto group) {
    sim::install(kDevices);
    const at::Device device = sim::device(group->rank() % kDevices);
    support::expect_collectives_as_on_host(*group, device);
    support::expect_order_in_a_stream(*group, device);
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceGroups,
                         ::testing::Values(std::pair(RankKind::single, 1), std::pair(RankKind::threads, 3),
                                           std::pair(RankKind::processes, 2), std::pair(RankKind::wrapped, 2),
                                           std::pair(RankKind::nodes, 3)),
                         [](const auto& kind) { return std::string(to_string(kind.param.first)); });

TEST(DeviceRefusals, TensorsOnTwoDevicesOrOnNone) {
  sim::install(kDevices);
  run_ranks(RankKind::single, 1, [](auto group) {
    const at::Tensor here = torch::ones({2}), there = here.to(sim::device(0)), beyond = here.to(sim::device(1));
    const std::string first = there.device().str(), second = beyond.device().str();
    EXPECT_EQ(support::what_of([&] { group->reduce_scatter(there, beyond); }),
              "reduce_scatter: output is on " + first + ", input on " + second);
    EXPECT_EQ(support::what_of([&] { group->all_to_all(here, there); }),
              "all_to_all: output is on cpu, input on " + first);
    EXPECT_EQ(support::what_of([&] { group->all_gather_into_tensor(there, here); }),
              "all_gather_into_tensor: output is on " + first + ", input on cpu");
    EXPECT_EQ(support::what_of([&] { group->all_reduce(torch::ones({2}, at::kMeta)); }),
              "all_reduce: needs a tensor of the CPU or of a device that computes, this one is on meta");
    EXPECT_EQ(support::what_of([&] { group->broadcast(here.to_sparse()); }),
              "broadcast: needs a dense tensor, this one is sparse, on cpu");
  });
}

// Of the same gradients the same means: the stand-in computes as the host does.
void expect_weights_of_the_host(const std::string& what, const std::function<ClassicJob(comm::Group&)>& job_of,
                                int ranks = 2) {
  SCOPED_TRACE(what);
  on_ranks(ranks, [&](const auto& group, at::Device device) {
    const std::vector<at::Tensor> wanted = train_classic(group, at::kCPU, job_of(*group));
    EXPECT_EQ(distance(train_classic(group, device, job_of(*group)), wanted), 0) << what;
  });
}

TEST(DeviceClassicPath, WeightsAreThoseOfTheHost) {
  const BucketOptions small{.bucket_cap_mb = 0.002};
  const auto job = [](ClassicJob made) { return [made = std::move(made)](comm::Group&) { return made; }; };
  expect_weights_of_the_host("a rank alone", job({}), 1);
  expect_weights_of_the_host("one bucket", job({}), 3);
  expect_weights_of_the_host("several buckets", job({.options = {.buckets = small}}));
  expect_weights_of_the_host("views", job({.options = {.gradient_as_bucket_view = true, .buckets = small}}));
  expect_weights_of_the_host("views of a rank alone", job({.options = {.gradient_as_bucket_view = true}}), 1);
  expect_weights_of_the_host("no_sync", job({.options = {.buckets = small}, .accumulates = true}));
  expect_weights_of_the_host("unused parameters",
                             job({.options = {.find_unused_parameters = true}, .leaves_one_out = true}));
  expect_weights_of_the_host("static graph", job({.options = {.static_graph = true}}));
  expect_weights_of_the_host("compared replicas", job({.options = {.verify_replicas_every = 1}}));
  expect_weights_of_the_host("uneven inputs", job({.options = {.buckets = small}, .more_of_rank_0 = 2}));
  expect_weights_of_the_host("bfloat16", job({.options = {.mixed_precision = {.reduce_dtype = at::kBFloat16}}}));
  expect_weights_of_the_host("PowerSGD", [](comm::Group& group) {
    const std::shared_ptr<comm::Group> same(std::shared_ptr<void>(), &group);
    auto state = std::make_shared<PowerSGDState>(same, PowerSGDOptions{.start_powerSGD_iter = 2});
    return ClassicJob{.hook = [state](GradBucket& bucket) { return powerSGD_hook(*state, bucket); }};
  });
}

TEST(DeviceClassicPath, WeightsAreThoseOfOneProcess) {
  on_ranks(3, [](const auto& group, at::Device device) {
    EXPECT_LT(distance(train_classic(group, device), train_classic(nullptr, at::kCPU)), 1e-5);
  });
}

// On a real device the streams would run beside each other.
TEST(DeviceClassicPath, NothingIsReadBeforeItIsThere) {
  on_ranks(2, [](const auto& group, at::Device device) {
    for (const bool views : {false, true}) {
      const sim::Recording recording;
      train_classic(
          group, device,
          {.options = {.gradient_as_bucket_view = views, .buckets = {.bucket_cap_mb = 0.002}}, .more_of_rank_0 = 1});
      EXPECT_GT(recording.history().size(), 100u);
      EXPECT_TRUE(recording.report().faults.empty()) << recording.report().text();
    }
  });
}

// Weights, moments, average, the hook's memory and what dropout draws from on the device.
std::string train_from_checkpoint(const std::shared_ptr<comm::Group>& group, at::Device device,
                                  const std::string& folder, std::uint64_t until) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(20, 40), torch::nn::Dropout(0.5), torch::nn::Linear(40, 5));
  net->to(device);
  at::Generator generator = at::globalContext().defaultGenerator(device);
  generator.set_current_seed(std::uint64_t(100 + group->rank()));
  DistributedDataParallel ddp(net, group);
  ddp.register_comm_hook(std::make_shared<TopKState>(group, TopKOptions{.ratio = 0.2}), topk_hook);
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.01));
  ExponentialMovingAverage average(*net, {.decay = 0.9});
  for (std::uint64_t step = checkpoint::resume(folder, ddp, adam, average).step; step < until;) {
    adam.zero_grad();
    const at::Tensor x = torch::arange(80).view({4, 20}).to(at::kFloat).div(80.0 + double(step)).to(device);
    ddp(x).pow(2).mean().backward();
    adam.step();
    average.update_parameters();
    if (++step == 3) checkpoint::save(folder, ddp, adam, average, step);
  }
  std::map<std::string, at::Tensor> averages;
  for (const auto& [name, tensor] : average.state_dict()) averages.emplace(name, tensor.cpu());
  return ddp.weights_hash() + state::tensors_hash(averages);
}

TEST(DeviceClassicPath, GoesOnFromACheckpoint) {
  const testing::ScratchFolder folder;
  support::SharedText undisturbed;
  on_ranks(2, [&](const auto& group, at::Device device) {
    const std::string end = train_from_checkpoint(group, device, folder.file("whole"), 6);
    if (group->rank() == 0) undisturbed.set(end);
    train_from_checkpoint(group, device, folder.file("ended"), 3);
  });
  on_ranks(2, [&](const auto& group, at::Device device) {
    EXPECT_EQ(train_from_checkpoint(group, device, folder.file("ended"), 6), undisturbed.get());
  });
}

// Of a device's generator it says nothing; the rest is the same anywhere.
TEST(DeviceClassicPath, GoesOnFromACheckpointOfTheHostWithItsGeneratorAsSeededWhichIsTold) {
  const testing::ScratchFolder folder;
  on_ranks(2, [&](const auto& group, at::Device device) {
    train_from_checkpoint(group, at::kCPU, folder.path(), 3);
    ::testing::internal::CaptureStderr();
    train_from_checkpoint(group, device, folder.path(), 4);
    const std::string told = ::testing::internal::GetCapturedStderr();
    const std::string line = "has random numbers of no ranks on a device '" +
                             c10::DeviceTypeName(device.type(), /*lower_case=*/true) +
                             "', here are 2: torch's generator stays as the program has seeded it\n";
    EXPECT_EQ(told.find(line) != std::string::npos, group->rank() == 0) << told;
  });
}

TEST(DeviceClassicPath, DeviceIdsNamesTheDeviceOfTheModel) {
  sim::install(kDevices);
  run_ranks(RankKind::single, 1, [](auto group) {
    const auto refusal = [&](std::vector<at::Device> ids) {
      torch::nn::Linear model(2, 1);
      model->to(sim::device(1));
      return support::what_of([&] { DistributedDataParallel ddp(model, group, {.device_ids = std::move(ids)}); });
    };
    const std::string there = sim::device(1).str();
    EXPECT_EQ(refusal({sim::device(1)}), "");
    EXPECT_EQ(refusal({at::Device(sim::device(1).type())}), "");
    EXPECT_EQ(refusal({sim::device(0)}), "data parallel: device_ids names '" + sim::device(0).str() +
                                             "', but parameter 'weight' is on '" + there +
                                             "'; move the model there before it is wrapped, by to()");
    EXPECT_THAT(refusal({at::kCPU}), HasSubstr("device_ids names 'cpu', but parameter 'weight' is on '" + there));
  });
}

TEST(DeviceClassicPath, AFailureInBackwardComesToItsCaller) {
  on_ranks(2, [](const auto& group, at::Device device) {
    torch::nn::Linear model(2, 1);
    model->to(device);
    DistributedDataParallel ddp(model, group);
    const at::Tensor x = torch::ones({1, 2}, device);
    if (group->rank() == 0) group->abort("rank 0 has enough");
    EXPECT_THROW(ddp(x).sum().backward(), GroupAborted);
  });
}

TEST(DeviceZero, SharesTheStateOut) {
  on_ranks(2, [](const auto& group, at::Device device) {
    const auto trained = [&](at::Device where) {
      torch::manual_seed(7);
      torch::nn::Sequential net(torch::nn::Linear(6, 40), torch::nn::Tanh(), torch::nn::Linear(40, 3));
      net->to(where);
      DistributedDataParallel ddp(net, group);
      ZeroRedundancyOptimizer<torch::optim::SGD> optimizer(net->parameters(), group,
                                                           torch::optim::SGDOptions(0.1).momentum(0.9));
      const at::Tensor x = (torch::arange(24).view({4, 6}) / 24.0 + group->rank()).to(at::kFloat).to(where);
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        ddp(x).pow(2).mean().backward();
        optimizer.step();
      }
      std::vector<at::Tensor> weights;
      for (const at::Tensor& parameter : net->parameters()) weights.push_back(parameter.detach().cpu());
      return weights;
    };
    EXPECT_EQ(distance(trained(device), trained(at::kCPU)), 0);
  });
}

}  // namespace
}  // namespace lockstep::parallel
