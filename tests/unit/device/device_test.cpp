// Memory, streams and events of the stand-in device, and what is recorded of them.

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <thread>

#include "tests/support/device/sim_device.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class SimDevice : public ::testing::Test {
 protected:
  void SetUp() override { sim::install(2); }

  static c10::Stream stream_of_pool() {
    return c10::impl::VirtualGuardImpl(at::kPrivateUse1).getStreamFromGlobalPool(sim::device());
  }
  static c10::Stream main_stream() { return at::accelerator::getCurrentStream(0); }

  static void order(const c10::Stream& earlier, const c10::Stream& later) {
    c10::Event event(at::kPrivateUse1);
    event.record(earlier);
    event.block(later);
  }
};

TEST_F(SimDevice, IsTheAccelerator) {
  EXPECT_EQ(at::getAccelerator(), at::kPrivateUse1);
  EXPECT_EQ(at::accelerator::deviceCount(), 2);
  EXPECT_EQ(sim::device(1).str(), "sim:1");
  EXPECT_EQ(at::Device("sim:1"), sim::device(1));
  EXPECT_NO_THROW(sim::install(2));
  EXPECT_THROW(sim::install(3), std::logic_error);
}

TEST_F(SimDevice, TensorsGoThereAndBack) {
  const at::Tensor host = torch::arange(12, torch::kFloat).reshape({3, 4});
  const at::Tensor there = host.to(sim::device(1));
  EXPECT_EQ(there.device(), sim::device(1));
  EXPECT_EQ(at::accelerator::getDeviceIndex(), 0);
  EXPECT_TRUE(at::equal(there.t().to(at::kCPU), host.t()));
  EXPECT_TRUE(at::equal(there.to(sim::device(0)).to(at::kCPU, at::kInt), host.to(at::kInt)));
  const at::Tensor on_host = sim::on_host(there);
  on_host.fill_(3);
  EXPECT_EQ(there.sum().item<float>(), 36);
}

TEST_F(SimDevice, ModulesMove) {
  torch::nn::Sequential model(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3));
  const at::Tensor weight = model->parameters()[0];
  model->to(sim::device(1));
  EXPECT_EQ(weight.device(), sim::device(1)) << "the same tensor, with other memory";
  model->forward(torch::randn({4, 2}, sim::device(1))).sum().backward();
  EXPECT_EQ(weight.grad().device(), sim::device(1));
  model->to(at::kCPU);
  EXPECT_EQ(weight.device(), at::kCPU);
}

TEST_F(SimDevice, PinnedMemoryIsKnown) {
  const at::Tensor pinned = torch::ones({4}).pin_memory();
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_TRUE(pinned.narrow(0, 1, 2).is_pinned());
  EXPECT_FALSE(torch::ones({4}).is_pinned());
  EXPECT_TRUE(torch::empty({2}, at::TensorOptions().pinned_memory(true)).is_pinned());
}

TEST_F(SimDevice, AStreamHasItsBlocksAgainAtOnce) {
  const void* block = nullptr;
  {
    const at::Tensor a = torch::empty({1000}, sim::device());
    block = a.const_data_ptr();
    EXPECT_EQ(at::globalContext().getAcceleratorHooksInterface().getDeviceFromPtr(a.data_ptr()), sim::device());
  }
  {
    const c10::StreamGuard guard(stream_of_pool());
    EXPECT_NE(torch::empty({1000}, sim::device()).const_data_ptr(), block);
  }
  EXPECT_EQ(torch::empty({1000}, sim::device()).const_data_ptr(), block);
}

TEST_F(SimDevice, MemoryEnds) {
  const at::Tensor held = torch::empty({1000}, sim::device(1));
  const auto [free, total] = at::accelerator::getMemoryInfo(1);
  EXPECT_EQ(total - free, 4096);
  EXPECT_EQ(at::accelerator::getDeviceStats(1).allocated_bytes[0].current, 4096);
  sim::limit_memory(1, 8192);
  EXPECT_THROW(torch::empty({2000}, sim::device(1)), c10::OutOfMemoryError);
  EXPECT_NO_THROW(torch::empty({1000}, sim::device(1)));
  sim::limit_memory(1, 0);
  EXPECT_NO_THROW(torch::empty({2000}, sim::device(1)));
}

TEST_F(SimDevice, DevicesAndStreamsAreTheThreadsOwn) {
  const c10::StreamGuard guard(stream_of_pool());
  EXPECT_NE(main_stream().id(), 0);
  std::thread([] {
    EXPECT_EQ(at::accelerator::getCurrentStream(0).id(), 0);
    at::accelerator::setDeviceIndex(1);
  }).join();
  EXPECT_EQ(at::accelerator::getDeviceIndex(), 0);
  EXPECT_THROW(at::accelerator::setDeviceIndex(2), c10::Error);
}

TEST_F(SimDevice, AnEventMayNotBeOverYet) {
  c10::Event event(at::kPrivateUse1);
  EXPECT_TRUE(event.query());
  {
    const sim::Busy busy;
    event.record(main_stream());
    EXPECT_FALSE(event.query());
    EXPECT_FALSE(main_stream().query());
  }
  EXPECT_TRUE(event.query());
  const sim::Busy again;
  EXPECT_TRUE(event.query()) << "of an earlier time";
  event.record(main_stream());
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST_F(SimDevice, AutogradRunsOnAThreadOfTheDeviceOnTheForwardsStream) {
  const at::Tensor weight = torch::ones({2}, sim::device(1)).requires_grad_();
  const c10::Stream side = c10::impl::VirtualGuardImpl(at::kPrivateUse1).getNewStream(sim::device(1));
  std::thread::id thread;
  std::optional<c10::Stream> stream;
  c10::DeviceIndex device = -1;
  at::Tensor doubled;
  {
    const c10::StreamGuard guard(side);
    doubled = weight * 2;
  }
  doubled.register_hook([&](const at::Tensor& gradient) { thread = std::this_thread::get_id(); });
  const unsigned hook = weight.register_hook([&](const at::Tensor& gradient) {
    stream = at::accelerator::getCurrentStream(1);
    device = at::accelerator::getDeviceIndex();
  });
  doubled.sum().backward();
  weight.remove_hook(hook);
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_NE(thread, std::thread::id());
  EXPECT_EQ(device, 1);
  ASSERT_TRUE(stream);
  EXPECT_EQ(weight.grad().sum().item<float>(), 4);
}

// What is recorded, and found in it.

TEST_F(SimDevice, AStepOnOneStreamIsInOrderAndTheHostNeverWaits) {
  torch::nn::Sequential model(torch::nn::Conv2d(1, 4, 3), torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                              torch::nn::MaxPool2d(2), torch::nn::Flatten(), torch::nn::Dropout(0.5),
                              torch::nn::Linear(36, 3));
  model->to(sim::device());
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const at::Tensor pictures = torch::randn({2, 1, 8, 8}).pin_memory();
  const at::Tensor labels = torch::tensor({0, 2}).pin_memory();
  const auto step = [&] {
    sgd.zero_grad();
    const at::Tensor there = pictures.to(sim::device(), true);
    at::Tensor loss = at::cross_entropy_loss(model->forward(there), labels.to(sim::device(), true));
    loss.backward();
    sgd.step();
    return loss;
  };
  step();
  const sim::Recording recording;
  const at::Tensor loss = step();
  step();
  EXPECT_EQ(recording.report().text(), "");
  EXPECT_THAT(recording.report().host_waits, IsEmpty());
  EXPECT_GT(recording.history().size(), 100U);
  loss.item<float>();
  EXPECT_THAT(recording.report().host_waits, ElementsAre(Pair("aten::_local_scalar_dense", 1)));
}

TEST_F(SimDevice, AutogradOrdersTheStreamsOfAStep) {
  const at::Tensor weight = torch::ones({8, 8}, sim::device()).requires_grad_();
  const c10::Stream side = stream_of_pool();
  const at::Tensor input = torch::ones({8, 8}, sim::device());
  const auto step = [&](bool ordered) {
    const sim::Recording recording;
    weight.mutable_grad().reset();
    at::Tensor half;
    if (ordered) order(main_stream(), side);
    {
      const c10::StreamGuard guard(side);
      input.record_stream(side);
      half = at::linear(input, weight).relu();
    }
    if (ordered) order(side, main_stream());
    half.record_stream(main_stream());
    const at::Tensor loss = (half * at::linear(input, weight)).sum();
    loss.backward();
    const at::NoGradGuard no_grad;
    weight.sub_(weight.grad(), 0.1);
    return recording.report().text();
  };
  step(true);
  EXPECT_EQ(step(true), "");
  EXPECT_THAT(step(false), HasSubstr("aten::mul"));
}

TEST_F(SimDevice, AWaitLeftOutIsFound) {
  const at::Tensor a = torch::ones({8}, sim::device());
  const c10::Stream side = stream_of_pool();
  for (const bool ordered : {true, false}) {
    const sim::Recording recording;
    a.mul_(2);
    if (ordered) order(main_stream(), side);
    {
      const c10::StreamGuard guard(side);
      a.add_(1);
    }
    if (ordered) order(side, main_stream());
    const at::Tensor sum = a.sum();
    if (ordered) {
      EXPECT_EQ(recording.report().text(), "");
    } else {
      EXPECT_THAT(recording.report().faults,
                  ElementsAre(HasSubstr("aten::add (1) on stream"), HasSubstr("reads memory that aten::add (1)")));
    }
  }
}

TEST_F(SimDevice, ColumnsAreWrittenSideBySide) {
  const at::Tensor a = torch::ones({8, 8}, sim::device());
  const sim::Recording recording;
  a.narrow(1, 0, 4).mul_(2);
  const c10::StreamGuard guard(stream_of_pool());
  a.narrow(1, 4, 4).mul_(2);
  EXPECT_EQ(recording.report().text(), "");
  a.narrow(1, 3, 2).mul_(2);
  EXPECT_EQ(recording.report().faults.size(), 1U);
}

TEST_F(SimDevice, ABlockReleasedTooEarlyIsFound) {
  const c10::Stream side = stream_of_pool();
  for (const bool kept : {true, false}) {
    const sim::Recording recording;
    {
      const at::Tensor a = torch::ones({8}, sim::device());
      order(main_stream(), side);
      const c10::StreamGuard guard(side);
      if (kept) a.record_stream(side);
      const at::Tensor sum = a.sum();
    }
    const at::Tensor next = torch::zeros({8}, sim::device());
    EXPECT_EQ(recording.report().faults.size(), kept ? 0U : 1U) << recording.report().text();
  }
}

TEST_F(SimDevice, CopiesOfPinnedMemoryGoOnWhileTheHostDoes) {
  const at::Tensor pinned = torch::zeros({8}).pin_memory();
  const at::Tensor there = torch::ones({8}, sim::device());
  const auto touch = [&](bool wait, const auto& use) {
    const sim::Recording recording;
    pinned.copy_(there, true);
    c10::Event event(at::kPrivateUse1);
    event.record(main_stream());
    if (wait) event.synchronize();
    use(pinned.const_data_ptr(), pinned.nbytes());
    return recording.report();
  };
  EXPECT_EQ(touch(true, sim::host_reads).text(), "");
  EXPECT_THAT(touch(false, sim::host_reads).faults,
              ElementsAre(HasSubstr("the host (2) reads memory that copy to the host")));
  EXPECT_EQ(touch(false, sim::host_writes).faults.size(), 1U);
}

TEST_F(SimDevice, CopiesTheHostWaitsForAreCounted) {
  const at::Tensor here = torch::zeros({8});
  const at::Tensor there = torch::ones({8}, sim::device());
  const auto waits = [](const auto& copy) {
    const sim::Recording recording;
    copy();
    return recording.report().host_waits;
  };
  const at::Tensor pinned = here.pin_memory();
  EXPECT_THAT(waits([&] { there.copy_(here); }), ElementsAre(Pair("copy to the device", 1)));
  EXPECT_THAT(waits([&] { there.copy_(here, true); }), ElementsAre(Pair(HasSubstr("not pinned"), 1)));
  EXPECT_THAT(waits([&] { here.copy_(there, true); }), ElementsAre(Pair(HasSubstr("not pinned"), 1)));
  EXPECT_THAT(waits([&] { here.copy_(there); }), ElementsAre(Pair("copy to the host", 1)));
  EXPECT_THAT(waits([&] { there.copy_(pinned, true); }), IsEmpty());
  EXPECT_THAT(waits([&] { there.copy_(pinned.to(at::kLong), true); }), ElementsAre(Pair(HasSubstr("not pinned"), 1)));
  EXPECT_THAT(waits([&] { pinned.copy_(there, true); }), IsEmpty());
  EXPECT_THAT(waits([&] { there.copy_(there * 2, true); }), IsEmpty());
  EXPECT_THAT(waits([&] { there.masked_select(there > 0); }), ElementsAre(Pair("aten::masked_select", 1)));
  EXPECT_THAT(waits([&] { there.index({there > 0}); }), ElementsAre(Pair("aten::nonzero", 1)));
  EXPECT_THAT(waits([&] { there.index({torch::tensor({1, 2})}); }), ElementsAre(Pair("copy to the device", 1)));
  const at::Tensor index = torch::tensor({1, 2}).to(sim::device());
  EXPECT_THAT(waits([&] { there.index({index}); }), IsEmpty());
  EXPECT_THAT(waits([&] { there.index_put_({index}, there.index({index})); }), IsEmpty());
  EXPECT_THAT(waits([&] { there.index_put_({there > 0}, there.sum()); }),
              ElementsAre(Pair("aten::_index_put_impl_", 1)));
  EXPECT_THAT(waits([&] { at::equal(there, there); }), ElementsAre(Pair("aten::equal", 1)));
  EXPECT_THAT(waits([] { at::accelerator::synchronizeDevice(1); }), ElementsAre(Pair("synchronize device", 1)));
}

TEST_F(SimDevice, CopiesBetweenDevicesAreInOrderWithBoth) {
  const at::Tensor a = torch::ones({8}, sim::device(0));
  const at::Tensor b = torch::ones({8}, sim::device(1));
  const sim::Recording recording;
  b.mul_(2);
  a.add_(1);
  b.copy_(a);
  b.mul_(2);
  a.add_(1);
  EXPECT_EQ(recording.report().text(), "");
}

TEST_F(SimDevice, AnOperationOfOnesOwnIsRecorded) {
  const at::Tensor a = torch::ones({8}, sim::device());
  const sim::Recording recording;
  {
    const c10::StreamGuard guard(stream_of_pool());
    sim::operation("all-reduce", {a}, {a});
  }
  a.add_(1);
  EXPECT_THAT(recording.report().faults, ElementsAre(HasSubstr("all-reduce (0)")));
  recording.clear();
  EXPECT_THAT(recording.history(), IsEmpty());
  EXPECT_THROW(sim::Recording(), std::logic_error);
}

}  // namespace
}  // namespace lockstep::testing
