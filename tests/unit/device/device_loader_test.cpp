// Batches on their way to a device: the stand-in records what was queued, and its checker what nothing orders.

#include "lockstep/data/device_loader.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "lockstep/data/data_loader.h"
#include "lockstep/data/normalize_pixels.h"
#include "lockstep/data/picture_batches.h"
#include "lockstep/data/synthetic.h"
#include "tests/support/device/sim_device.h"
#include "tests/support/wait_until.h"
#include "tests/unit/data/numbered_samples.h"

namespace lockstep::data {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace sim = lockstep::testing::sim;

// A batch whose elements all are its number, and the number.
Batch numbered(std::int64_t number) {
  return {torch::full({4, 3}, double(number)), torch::full({1}, number, torch::kLong)};
}

std::int64_t number_of(const Batch& batch) { return batch.target.cpu().item<std::int64_t>(); }

void wait_until_made(const DeviceLoader& loader, std::int64_t count) {
  testing::wait_until([&] {
    std::int64_t made = 0;
    for (const WorkerStatistics& worker : loader.statistics().workers) made += worker.batches;
    return made >= count;
  });
}

std::ptrdiff_t copies_in(const sim::Recording& recording) {
  const std::vector<sim::Entry> history = recording.history();
  return std::ranges::count_if(history, [](const sim::Entry& entry) { return entry.name == "copy to the device"; });
}

class DeviceLoaderOnADevice : public ::testing::Test {
 protected:
  void SetUp() override { sim::install(2); }
};

TEST_F(DeviceLoaderOnADevice, GivesTheLoadersBatchesInOrderAndWaitsForNone) {
  for (const int workers : {1, 3}) {
    const at::Tensor sum = torch::zeros({1}, sim::device(1));
    const sim::Recording recording;
    {
      DeviceLoader loader(numbered, 0, 20, sim::device(1), {.workers = workers, .prefetch = 4});
      for (std::int64_t number = 0; number < 20; ++number) {
        EXPECT_EQ(loader.position(), number);
        const std::optional<Batch> batch = loader.next();
        ASSERT_TRUE(batch);
        EXPECT_EQ(batch->data.device(), sim::device(1));
        EXPECT_EQ(batch->target.device(), sim::device(1));
        sum.add_(batch->data.sum());
        sum.add_(batch->target.sum());
      }
      EXPECT_FALSE(loader.next());
      EXPECT_FALSE(loader.next()) << "the end stays the end";
      EXPECT_EQ(loader.position(), 20);
    }
    const sim::Report report = recording.report();
    EXPECT_THAT(report.faults, IsEmpty()) << report.text();
    EXPECT_EQ(report.all_host_waits(), 0);
    EXPECT_EQ(copies_in(recording), 40);
    EXPECT_EQ(sum.item<float>(), 190 * 13);
  }
}

TEST_F(DeviceLoaderOnADevice, FollowsTheStreamThatTakesTheBatch) {
  const c10::Stream side = c10::impl::VirtualGuardImpl(at::kPrivateUse1).getNewStream(sim::device());
  const sim::Recording recording;
  {
    const c10::StreamGuard guard(side);
    DeviceLoader loader(numbered, 0, 8, sim::device());
    while (const auto batch = loader.next()) batch->data.mul(2);
  }
  EXPECT_THAT(recording.report().faults, IsEmpty()) << recording.report().text();
}

TEST_F(DeviceLoaderOnADevice, CopiesOneAheadWhichDoesNotCount) {
  const sim::Recording recording;
  DeviceLoader loader(numbered, 0, 10, sim::device(), {.workers = 1, .prefetch = 10});
  wait_until_made(loader, 10);
  EXPECT_EQ(copies_in(recording), 0);
  for (std::int64_t number = 0; number < 3; ++number) {
    EXPECT_EQ(number_of(*loader.next()), number);
    EXPECT_EQ(copies_in(recording), 2 * (number + 2)) << "data and target of this one and of the next";
    EXPECT_EQ(loader.state(), LoaderState{number + 1});
  }
  loader.restore({3});
  EXPECT_EQ(number_of(*loader.next()), 3) << "a restore to where it stands";
  loader.restore({7});
  EXPECT_EQ(loader.position(), 7);
  EXPECT_EQ(number_of(*loader.next()), 7);
  loader.restore({2});
  for (std::int64_t number = 2; number < 10; ++number) EXPECT_EQ(number_of(*loader.next()), number);
  EXPECT_FALSE(loader.next());
}

TEST_F(DeviceLoaderOnADevice, ThrowsAtTheBatchThatIsWrong) {
  const auto source = [](std::int64_t number) {
    if (number == 2) throw std::runtime_error("no such sample");
    return numbered(number);
  };
  DeviceLoader loader(source, 0, 6, sim::device(), {.workers = 1, .prefetch = 6});
  wait_until_made(loader, 6);
  EXPECT_EQ(number_of(*loader.next()), 0);
  EXPECT_EQ(number_of(*loader.next()), 1);
  EXPECT_EQ(loader.position(), 2);
  EXPECT_THROW(loader.next(), std::runtime_error);
  EXPECT_EQ(loader.position(), 2);

  DeviceLoader past(source, 0, 6, sim::device(), {.workers = 1, .prefetch = 6});
  wait_until_made(past, 6);
  EXPECT_EQ(number_of(*past.next()), 0);
  past.restore({3});
  EXPECT_EQ(number_of(*past.next()), 3) << "what went wrong ahead is nobody's";
}

TEST_F(DeviceLoaderOnADevice, PassesNoBatchOverWhereTheDeviceIsFull) {
  DeviceLoader loader(numbered, 0, 6, sim::device(1), {.workers = 1, .prefetch = 6});
  wait_until_made(loader, 6);
  EXPECT_EQ(number_of(*loader.next()), 0);
  sim::limit_memory(1, 1);
  EXPECT_THROW(loader.next(), c10::OutOfMemoryError);
  EXPECT_EQ(loader.position(), 1);
  sim::limit_memory(1, 0);
  for (std::int64_t number = 1; number < 6; ++number) EXPECT_EQ(number_of(*loader.next()), number);
}

TEST_F(DeviceLoaderOnADevice, GoesWithACopyUnderWay) {
  const sim::Recording recording;
  {
    DeviceLoader loader(numbered, 0, 6, sim::device(), {.workers = 1, .prefetch = 6});
    wait_until_made(loader, 6);
    loader.next()->data.mul(2);
  }
  DeviceLoader another(numbered, 0, 6, sim::device());
  while (const auto batch = another.next()) batch->data.mul(2);
  EXPECT_THAT(recording.report().faults, IsEmpty()) << recording.report().text();
}

// By what the host knows: it may write what the device has read where that is certain to be over.
TEST_F(DeviceLoaderOnADevice, ABatchIsCopiedWhenTheDeviceIsThroughWithAllButTheLastThatWasGiven) {
  for (const bool behind : {false, true}) {
    DeviceLoader loader(numbered, 0, 8, sim::device(), {.workers = 1, .prefetch = 8});
    wait_until_made(loader, 8);
    std::optional<sim::Busy> busy;
    if (behind) busy.emplace();
    const sim::Recording recording;
    std::vector<Batch> given;
    for (int number = 0; number < 8; ++number) {
      given.push_back(*loader.next());
      EXPECT_EQ(recording.report().all_host_waits(), behind ? std::min(number, 6) : 0) << "the last copies none";
      if (number >= 2 && number < 7) {
        const at::Tensor& used = given[std::size_t(number) - 2].data;
        sim::host_writes(used.const_data_ptr(), used.nbytes());
      }
      given.back().data.mul_(2);
    }
    EXPECT_THAT(recording.report().faults, IsEmpty()) << recording.report().text();
  }
}

// Of a size that no other test has.
TEST_F(DeviceLoaderOnADevice, OneMadeAnewTakesTheMemoryOfTheOneBefore) {
  const auto source = [](std::int64_t number) { return Batch{torch::full({5000}, double(number)), {}}; };
  const auto reserved_behind_one = [&] {
    DeviceLoader loader(source, 0, 6, sim::device(), {.workers = 1, .prefetch = 6});
    wait_until_made(loader, 6);
    for (std::int64_t number = 0; number < 6; ++number) EXPECT_TRUE(loader.next());
    return at::accelerator::getDeviceStats(0).reserved_bytes[0].current;
  };
  const auto reserved = reserved_behind_one();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(reserved_behind_one(), reserved);
}

TEST_F(DeviceLoaderOnADevice, WhatIsCopiedUnderInferenceModeTrains) {
  DeviceLoader loader(numbered, 1, 3, sim::device(), {.workers = 1, .prefetch = 2});
  wait_until_made(loader, 2);
  const at::Tensor weight = torch::ones({3}, at::TensorOptions(sim::device()).requires_grad(true));
  std::vector<Batch> batches;
  {
    const c10::InferenceMode inference;
    batches.push_back(*loader.next());  // and copies the second
    const DeviceCopies copies{sim::device()};
    batches.push_back(copies.hand_over(copies.start(pin_memory(numbered(3)))));
    EXPECT_EQ(number_of(batches[0]), 1);
  }
  batches.push_back(*loader.next());
  for (const Batch& batch : batches) {
    ASSERT_FALSE(batch.data.is_inference());
    (batch.data * weight).sum().backward();
  }
  EXPECT_TRUE(at::equal(weight.grad().cpu(), torch::full({3}, 4.0 * (1 + 2 + 3))));
}

TEST_F(DeviceLoaderOnADevice, IsTheLoaderOnTheCpu) {
  const void* made = nullptr;
  const auto source = [&](std::int64_t number) {
    Batch batch = numbered(number);
    made = batch.data.const_data_ptr();
    return batch;
  };
  DeviceLoader loader(source, 4, 5, at::kCPU);
  const std::optional<Batch> batch = loader.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->data.const_data_ptr(), made);
  EXPECT_FALSE(batch->data.is_pinned());
  EXPECT_EQ(loader.position(), 5);
  EXPECT_FALSE(loader.next());
}

// Blocks of the host that are written before the copies out of them are done.
TEST_F(DeviceLoaderOnADevice, TheCheckerFindsPinnedMemoryThatIsWrittenTooEarly) {
  const auto faults = [](bool same_block) {
    const sim::Recording recording;
    const at::Tensor block = torch::empty({64}, at::TensorOptions().pinned_memory(true));
    const auto source = [&](std::int64_t number) {
      testing::wait_until([&] { return copies_in(recording) >= number; });
      const at::Tensor data = same_block ? block : torch::empty({64}, at::TensorOptions().pinned_memory(true));
      sim::host_writes(data.const_data_ptr(), data.nbytes());
      return Batch{data, {}};
    };
    DeviceLoader loader(source, 0, 4, sim::device(), {.workers = 1, .prefetch = 1});
    while (const auto batch = loader.next()) batch->data.mul(2);
    return recording.report().faults;
  };
  EXPECT_THAT(faults(true), Contains(HasSubstr("copy to the device")));
  EXPECT_THAT(faults(false), IsEmpty());
}

TEST_F(DeviceLoaderOnADevice, MemoryThatLibtorchHasNotPageLockedIsReadUntilTheCopyIsDone) {
  static float locked[64], plain[64];
  sim::pin(locked, sizeof locked);
  const DeviceCopies copies{sim::device()};
  for (const auto& [memory, waits] : {std::pair(locked, false), std::pair(locked, true), std::pair(plain, false)}) {
    const sim::Recording recording;
    const DeviceCopies::Copy copy = copies.start({torch::from_blob(memory, {64}), {}});
    EXPECT_EQ(recording.report().all_host_waits(), memory == plain ? 1 : 0);
    if (waits) copy.done.synchronize();
    sim::host_writes(memory, sizeof locked);
    EXPECT_EQ(recording.report().faults.empty(), waits || memory == plain) << "what is being copied is written";
  }
}

TEST_F(DeviceLoaderOnADevice, TheCheckerFindsAnEventThatIsLeftOut) {
  const Batch batch = pin_memory(numbered(1));
  for (const bool waits : {false, true}) {
    const sim::Recording recording;
    const DeviceCopies copies{sim::device()};
    const DeviceCopies::Copy copy = copies.start(batch);
    (waits ? copies.hand_over(copy) : copy.batch).data.mul(2);
    if (waits)
      EXPECT_THAT(recording.report().faults, IsEmpty());
    else
      EXPECT_THAT(recording.report().faults, Contains(HasSubstr("copy to the device")));
  }
}

TEST_F(DeviceLoaderOnADevice, TheCheckerFindsABlockThatIsUsedAgainTooEarly) {
  const Batch batch = pin_memory(numbered(1));
  for (const bool is_recorded : {false, true}) {
    const sim::Recording recording;
    const DeviceCopies copies{sim::device()};
    {
      const DeviceCopies::Copy copy = copies.start(batch);
      if (is_recorded) copies.hand_over(copy);
      copy.done.block(at::accelerator::getCurrentStream(0));
      copy.batch.data.mul(2);
    }
    copies.start(batch);
    if (is_recorded)
      EXPECT_THAT(recording.report().faults, IsEmpty());
    else
      EXPECT_THAT(recording.report().faults, Contains(HasSubstr("without record_stream")));
  }
}

TEST_F(DeviceLoaderOnADevice, PinsWhatIsDenseAndKeepsItsStrides) {
  const at::Tensor pictures = torch::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  const Batch batch = pin_memory({pictures, torch::ones({1}).expand({6})});
  EXPECT_TRUE(batch.data.is_pinned());
  EXPECT_EQ(batch.data.strides(), pictures.strides());
  EXPECT_TRUE(at::equal(batch.data, pictures));
  EXPECT_TRUE(batch.target.is_pinned());
  EXPECT_TRUE(at::equal(batch.target, torch::ones({6})));
  EXPECT_EQ(pin_memory(batch).data.const_data_ptr(), batch.data.const_data_ptr()) << "what is, stays";
  EXPECT_FALSE(pin_memory({pictures, {}}).target.defined());
  const Batch there = DeviceCopies(sim::device()).start(batch).batch;
  EXPECT_EQ(there.data.strides(), pictures.strides());
}

TEST_F(DeviceLoaderOnADevice, PicturesAreWrittenIntoPinnedMemoryWhereAsked) {
  const auto set = std::make_shared<SyntheticPictures>(SyntheticOptions{.size = 8, .image_size = {9, 7}});
  const std::vector<std::int64_t> indices = {5, 0, 3};
  for (const PixelLayout layout : {PixelLayout::planes, PixelLayout::channels_last}) {
    const NormalizeOptions normalize{.mean = {0.5}, .std = {0.25}, .layout = layout};
    const Batch pinned = PictureBatches(set, Compose(), {.normalize = normalize, .pin_memory = true}).make(0, indices);
    const Batch plain = PictureBatches(set, Compose(), {.normalize = normalize}).make(0, indices);
    EXPECT_TRUE(pinned.data.is_pinned());
    EXPECT_FALSE(plain.data.is_pinned());
    EXPECT_TRUE(at::equal(pinned.data, plain.data));
    EXPECT_EQ(pinned.data.strides(), plain.data.strides());
    EXPECT_EQ(pin_memory(pinned).data.const_data_ptr(), pinned.data.const_data_ptr());
  }
}

TEST_F(DeviceLoaderOnADevice, PicturesThatTravelAsBytesBecomeTheHostsNumbers) {
  const auto set = std::make_shared<SyntheticPictures>(SyntheticOptions{.size = 12, .image_size = {9, 7}});
  const NormalizeOptions numbers{.mean = {0.5, 0.4, 0.3}, .std = {0.25}, .layout = PixelLayout::channels_last};
  NormalizeOptions bytes = numbers;
  bytes.type = PixelType::uint8;
  const auto made = [&](const NormalizeOptions& normalize, at::Device device) {
    const PictureBatchOptions options{.normalize = normalize};
    return DataLoader(std::make_shared<PictureBatches>(set, Compose(), options), Part{},
                      {.batch_size = 4, .device = device});
  };
  DataLoader here = made(numbers, at::kCPU), there = made(bytes, sim::device(1));
  const NormalizePixels normalize(numbers, sim::device(1));
  std::vector<at::Tensor> found;
  const sim::Recording recording;
  for (auto& batch : there) {
    EXPECT_EQ(batch.data.scalar_type(), at::kByte);
    found.push_back(normalize(batch.data));
  }
  const sim::Report report = recording.report();
  EXPECT_THAT(report.faults, IsEmpty()) << report.text();
  EXPECT_EQ(report.all_host_waits(), 0);
  ASSERT_EQ(found.size(), 3u);
  for (const at::Tensor& there_found : found) EXPECT_TRUE(at::equal(there_found.cpu(), here.next()->data));
}

// The place that a step commits: the same as on the CPU, and a new loader goes on there, in the middle of an epoch.
TEST_F(DeviceLoaderOnADevice, ADataLoaderGoesOnExactly) {
  const auto made = [](at::Device device) {
    return DataLoader(
        samples(22), Part{},
        {.batch_size = 4, .shuffle = true, .seed = 3, .num_workers = 2, .total_batches = 18, .device = device});
  };
  const auto next_of = [](DataLoader& loader) {
    std::optional<Batch> batch = loader.next();
    if (!batch) batch = loader.next();
    return batch ? samples_in({batch->data.cpu(), batch->target.cpu()}) : Numbers{};
  };
  for (const int taken : {1, 3, 6, 7, 17}) {
    DataLoader here = made(at::kCPU), there = made(sim::device(1)), later = made(sim::device());
    for (int i = 0; i < taken; ++i) {
      EXPECT_EQ(next_of(there), next_of(here));
      EXPECT_EQ(there.state(), here.state()) << "what was copied ahead does not count";
    }
    ASSERT_EQ(there.kept().size(), here.kept().size());
    EXPECT_EQ(std::memcmp(there.kept().data(), here.kept().data(), here.kept().size()), 0);
    std::memcpy(later.kept().data(), there.kept().data(), there.kept().size());
    for (Numbers expected = next_of(here);; expected = next_of(here)) {
      EXPECT_EQ(next_of(later), expected) << "behind " << taken;
      if (expected.empty()) break;
    }
  }
}

TEST_F(DeviceLoaderOnADevice, ALoopOverADataLoaderIsInOrder) {
  DataLoader loader(samples(20), Part{}, {.batch_size = 4, .num_workers = 2, .device = sim::device()});
  const at::Tensor sum = torch::zeros({1}, at::TensorOptions(sim::device()).dtype(at::kLong));
  const sim::Recording recording;
  for (int epoch = 0; epoch < 2; ++epoch) {
    loader.set_epoch(epoch);
    for (auto& batch : loader) sum.add_(batch.target.sum());
  }
  const sim::Report report = recording.report();
  EXPECT_THAT(report.faults, IsEmpty()) << report.text();
  EXPECT_EQ(report.all_host_waits(), 0);
  EXPECT_EQ(sum.item<std::int64_t>(), 380);
}

}  // namespace
}  // namespace lockstep::data
