// DataParallel on several devices, of which there is a stand-in, and several times on one.

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/comm/device_streams.h"
#include "lockstep/parallel/data_parallel.h"
#include "tests/support/device/replica_cases.h"
#include "tests/support/device/sim_device.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

namespace sim = lockstep::testing::sim;
using support::CutNet;

class DataParallelOnDevices : public ::testing::Test {
 protected:
  void SetUp() override { sim::install(); }
};

TEST_F(DataParallelOnDevices, TrainsAsOnTheCpu) {
  for (const std::vector<int>& places : std::vector<std::vector<int>>{{0, 1}, {1, 1}, {1, 0, 1}}) {
    std::vector<at::Device> devices;
    for (const int place : places) devices.push_back(sim::device(place));
    const std::vector<at::Device> cpus(devices.size(), at::kCPU);
    const std::vector<at::Tensor> found = CutNet(devices).train(3);
    support::expect_close(found, CutNet(cpus).train(3));
    const std::vector<at::Tensor> again = CutNet(devices).train(3);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], again[i])) << i;
  }
}

// On real devices the streams would run beside each other.
TEST_F(DataParallelOnDevices, NothingIsReadBeforeItIsThere) {
  CutNet net({sim::device(0), sim::device(1)});
  net.train(1);
  const sim::Recording recording;
  net.train(2);
  EXPECT_GT(recording.history().size(), 100u);
  EXPECT_TRUE(recording.report().faults.empty()) << recording.report().text();
}

// Where each forward ran, by the device of its input.
struct Places {
  std::mutex mutex;
  std::map<int, std::set<std::pair<int, c10::StreamId>>> found;  ///< current device, current stream
};

struct TellingNetImpl : torch::nn::Module {
  TellingNetImpl(at::Device device, std::shared_ptr<Places> the_places) : places(std::move(the_places)) {
    scale = register_parameter("scale", torch::ones({3}, device));
  }
  at::Tensor forward(const at::Tensor& x) {
    const int current = c10::impl::VirtualGuardImpl(x.device().type()).getDevice().index();
    const std::lock_guard lock(places->mutex);
    places->found[x.device().index()].emplace(current, comm::current_stream(x.device()).id());
    return x * scale;
  }
  std::shared_ptr<Places> places;
  at::Tensor scale;
};
TORCH_MODULE(TellingNet);

TEST_F(DataParallelOnDevices, ReplicasAreOnTheirDevicesInTheCallersStreams) {
  const auto places = std::make_shared<Places>();
  const auto make = [&](at::Device device) { return TellingNet(device, places); };
  DataParallel<TellingNet> model(make(sim::device(0)), {sim::device(0), sim::device(1)}, make);
  const c10::Stream side = comm::side_stream(sim::device(0));
  {
    const c10::StreamGuard aside(side);
    model(torch::ones({4, 3}, sim::device(0)));
  }
  using Found = std::set<std::pair<int, c10::StreamId>>;
  EXPECT_EQ(places->found.at(0), (Found{{0, side.id()}}));
  EXPECT_EQ(places->found.at(1), (Found{{1, comm::current_stream(sim::device(1)).id()}}));
}

TEST_F(DataParallelOnDevices, AWeightEditedBeforeBackwardIsAnErrorAndAFrozenOneGetsNone) {
  torch::nn::Linear linear(3, 2);
  linear->to(sim::device(0));
  DataParallel<torch::nn::Linear> model(linear, {sim::device(0), sim::device(1)});
  const at::Tensor x = torch::ones({4, 3}, sim::device(0));
  const at::Tensor edited = model(x).sum();
  {
    const torch::NoGradGuard no_grad;
    linear->bias.add_(1);
  }
  EXPECT_THAT(support::what_of([&] { edited.backward(); }), ::testing::HasSubstr("modified by an inplace operation"));
  linear->zero_grad();
  linear->weight.set_requires_grad(false);
  model(x).sum().backward();
  EXPECT_FALSE(linear->weight.grad().defined());
  EXPECT_TRUE(at::equal(linear->bias.grad().cpu(), torch::full({2}, 4.0F)));
}

}  // namespace
}  // namespace lockstep::parallel
