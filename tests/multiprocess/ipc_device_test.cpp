// The group by shared memory of devices, over a stand-in of that memory (tests/support/device/peer_memory_stand_in.h).

#include <ATen/DeviceAccelerator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "lockstep/comm/ipc/ipc_group.h"
#include "lockstep/comm/shm/shm_group.h"
#include "lockstep/comm/wrapped_group.h"
#include "lockstep/lockstep.h"
#include "tests/support/device/comm_cases.h"
#include "tests/support/device/peer_memory_stand_in.h"
#include "tests/support/device/sim_device.h"
#include "tests/support/ranks.h"
#include "tests/support/what_of.h"

namespace lockstep::comm::ipc {
namespace {

using support::RankKind;
using support::what_of;
using ::testing::HasSubstr;
namespace sim = lockstep::testing::sim;

using Body = std::function<void(const std::shared_ptr<Group>& group, const std::shared_ptr<Group>& inner, at::Device)>;

void by_ipc(RankKind kind, int ranks, const Body& body, support::RankOptions options = {}) {
  support::run_ranks(
      kind, ranks,
      [&](auto inner) {
        sim::install(2);
        body(std::make_shared<IpcGroup>(inner, sim::peer_memory()), inner, sim::device(0));
      },
      options);
}

at::Tensor draw(int rank, at::IntArrayRef sizes, at::ScalarType dtype) {
  at::Generator generator = torch::make_generator<at::CPUGeneratorImpl>(std::uint64_t(100 + rank));
  return (torch::randn(sizes, generator) * 50).to(dtype);
}

TEST(IpcGroup, CollectivesAreThoseOfTheHost) {
  for (const int ranks : {1, 2, 3, 4})
    by_ipc(RankKind::processes, ranks, [](const auto& group, const auto& inner, at::Device device) {
      support::expect_collectives_as_on_host(*group, device);
      support::expect_order_in_a_stream(*group, device);
    });
  by_ipc(RankKind::threads, 3, [](const auto& group, const auto& inner, at::Device device) {
    support::expect_collectives_as_on_host(*group, device);
  });
}

// Sums that no order but the tree's gives, of every dtype and operation.
TEST(IpcGroup, ReductionsHaveTheBitsOfTheHost) {
  for (const int ranks : {2, 3, 4})
    by_ipc(RankKind::processes, ranks, [](const auto& group, const auto& inner, at::Device device) {
      for (const at::ScalarType dtype :
           {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kChar, at::kByte, at::kInt, at::kLong, at::kBool})
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
          if (op == ReduceOp::mean && !at::isFloatingType(dtype)) continue;
          const at::Tensor wanted = draw(group->rank(), {1001}, at::kFloat).clamp(0, 100).to(dtype);
          const at::Tensor tensor = wanted.to(device);
          inner->all_reduce(wanted, op);
          group->all_reduce(tensor, op);
          EXPECT_TRUE(tensor.cpu().equal(wanted)) << c10::toString(dtype) << ", op " << int(op);
        }
      const float nan = std::numeric_limits<float>::quiet_NaN();
      const at::Tensor tensor = torch::tensor({group->rank() == 0 ? nan : 1.0F, group->rank() == 1 ? nan : 1.0F});
      const at::Tensor there = tensor.to(device);
      group->all_reduce(there, ReduceOp::max);
      EXPECT_TRUE(there.isnan().all().template item<bool>());
    });
}

TEST(IpcGroup, LargeTensorsGoInPieces) {
  by_ipc(RankKind::processes, 3, [](const auto& group, const auto& inner, at::Device device) {
    const std::int64_t piece = std::int64_t(ExchangeBuffer::kPieceBytes / sizeof(float));
    const int ranks = group->size();
    const std::int64_t n = 2 * piece + 5;
    const at::Tensor here = draw(group->rank(), {n}, at::kFloat), there = here.to(device);
    const at::Tensor root = here.clone(), root_there = there.clone();
    inner->broadcast(root, 1);
    group->broadcast(root_there, 1);
    EXPECT_TRUE(root_there.cpu().equal(root));
    inner->all_reduce(here);
    group->all_reduce(there);
    EXPECT_TRUE(there.cpu().equal(here));

    const at::Tensor wide = draw(group->rank(), {ranks, piece / 2 + 3}, at::kFloat), wide_there = wide.to(device);
    const at::Tensor part = torch::empty({piece / 2 + 3}), part_there = part.to(device);
    inner->reduce_scatter(part, wide, ReduceOp::mean);
    group->reduce_scatter(part_there, wide_there, ReduceOp::mean);
    EXPECT_TRUE(part_there.cpu().equal(part));
    const at::Tensor all = torch::empty_like(wide), all_there = torch::empty_like(wide_there);
    inner->all_to_all(all, wide);
    group->all_to_all(all_there, wide_there);
    EXPECT_TRUE(all_there.cpu().equal(all));
    // An output whose elements do not follow one another.
    const at::Tensor strided = torch::empty({n, ranks}, at::kFloat).to(device).t();
    group->all_gather_into_tensor(strided, there);
    for (int peer = 0; peer < ranks; ++peer) EXPECT_TRUE(strided[peer].cpu().equal(here));
  });
}

TEST(IpcGroup, TrainsAsOverTheHost) {
  by_ipc(RankKind::processes, 2, [](const auto& group, const auto& inner, at::Device device) {
    const parallel::DataParallelOptions views{.gradient_as_bucket_view = true, .buckets = {.bucket_cap_mb = 0.002}};
    for (const support::ClassicJob& job : {support::ClassicJob{}, support::ClassicJob{.options = views}})
      EXPECT_EQ(
          support::distance(support::train_classic(group, device, job), support::train_classic(inner, device, job)), 0);
  });
}

TEST(IpcGroup, NothingIsReadBeforeItIsThere) {
  by_ipc(RankKind::processes, 2, [](const auto& group, const auto& inner, at::Device device) {
    const sim::Recording recording;
    support::train_classic(group, device, {.options = {.buckets = {.bucket_cap_mb = 0.002}}});
    EXPECT_GT(recording.history().size(), 100u);
    EXPECT_TRUE(recording.report().faults.empty()) << recording.report().text();
  });
}

// What the checker of a rank does not see: the peers have written their areas when the ranks meet, and read this rank's
// behind that. The host does both in their place.
class PeersSeen final : public WrappedGroup {
 public:
  using WrappedGroup::WrappedGroup;

  void barrier() override {
    for (const void* const area : theirs_) sim::host_writes(area, kAreaBytes);
    if (own_ != nullptr) sim::host_reads(own_, kAreaBytes);
    WrappedGroup::barrier();
  }

  // For one group at a time.
  static device::PeerMemory memory() {
    device::PeerMemory known = sim::peer_memory();
    known.allocate = [](void** area, std::size_t bytes) {
      const int error = sim::peer_memory().allocate(area, bytes);
      if (error == 0) own_ = *area;
      return error;
    };
    known.open_handle = [](void** area, device::MemoryHandle handle, unsigned flags) {
      const int error = sim::peer_memory().open_handle(area, handle, flags);
      if (error == 0) theirs_.push_back(*area);
      return error;
    };
    known.close_handle = [](void* area) {
      std::erase(theirs_, area);
      return sim::peer_memory().close_handle(area);
    };
    return known;
  }

 private:
  static constexpr std::size_t kAreaBytes = 2 * ExchangeBuffer::kPieceBytes;
  static inline void* own_ = nullptr;
  static inline std::vector<void*> theirs_;
};

TEST(IpcGroup, NoAreaIsReadOrWrittenBeforeItsTime) {
  support::run_ranks(RankKind::processes, 2, [](auto inner) {
    sim::install(2);
    const at::Device device = sim::device(0);
    const std::shared_ptr<PeersSeen> seen = std::make_shared<PeersSeen>(inner);
    const sim::Recording recording;
    {
      IpcGroup group(seen, PeersSeen::memory());
      const std::int64_t n = 2 * std::int64_t(ExchangeBuffer::kPieceBytes / sizeof(float)) + 5;
      const at::Tensor tensor = torch::ones({n}).to(device), wide = torch::ones({2, n}).to(device);
      group.all_reduce(tensor, ReduceOp::mean);
      group.broadcast(tensor, 1);
      group.all_gather_into_tensor(wide, tensor);
      group.reduce_scatter(tensor, wide, ReduceOp::mean);
    }
    EXPECT_TRUE(recording.report().faults.empty()) << recording.report().text();
    recording.clear();
    const ExchangeBuffer buffer(*seen, PeersSeen::memory(), device);
    const at::Tensor values = torch::ones({8}).to(device);
    buffer.part(seen->rank(), 0, 0, 8, at::kFloat).copy_(values);
    seen->barrier();
    EXPECT_FALSE(recording.report().faults.empty()) << "a meeting without the wait before it";
  });
}

// What groups for devices do with all_gather, which they leave to their base.
class CountsGathers final : public WrappedGroup {
 public:
  using WrappedGroup::WrappedGroup;

  void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) override {
    ++count;
    WrappedGroup::all_gather_into_tensor(output, input);
  }

  int count = 0;
};

TEST(IpcGroup, AllGatherIsItsBasesOverAllGatherIntoTensor) {
  support::run_ranks(RankKind::processes, 2, [](auto inner) {
    sim::install(2);
    CountsGathers group(inner);
    for (const at::Tensor& here : {draw(group.rank(), {3, 2}, at::kFloat).t(), draw(group.rank(), {}, at::kLong)}) {
      group.count = 0;
      const std::vector<at::Tensor> wanted = group.all_gather(here);
      EXPECT_EQ(group.count, 0) << "tensors of the host are the inner group's";
      const std::vector<at::Tensor> got = group.all_gather(here.to(sim::device(0)));
      EXPECT_EQ(group.count, 1);
      ASSERT_EQ(got.size(), 2u);
      for (std::size_t peer = 0; peer < got.size(); ++peer) {
        EXPECT_EQ(got[peer].device(), sim::device(0));
        EXPECT_TRUE(got[peer].is_contiguous());
        EXPECT_TRUE(got[peer].cpu().equal(wanted[peer]));
      }
    }
  });
}

TEST(IpcGroup, ClosesWhatItHasOpenedAndAnotherCanBeMade) {
  by_ipc(RankKind::processes, 3, [](const auto& group, const auto& inner, at::Device device) {
    for (int round = 0; round < 3; ++round) {
      IpcGroup another(inner, sim::peer_memory());
      const at::Tensor tensor = torch::ones({10}).to(device);
      another.all_reduce(tensor, ReduceOp::sum);
      EXPECT_EQ(tensor.sum().template item<float>(), 30);
      EXPECT_EQ(sim::opened_areas(), 2);
    }
    EXPECT_EQ(sim::opened_areas(), 0);
  });
}

TEST(IpcGroup, RanksThatDisagreeAreNamed) {
  by_ipc(RankKind::processes, 2, [](const auto& group, const auto& inner, at::Device device) {
    const at::Tensor tensor = torch::ones({group->rank() == 0 ? 3 : 4}).to(device);
    EXPECT_THAT(what_of([&] { group->all_reduce(tensor, ReduceOp::sum); }), HasSubstr("ranks disagree: rank "));
  });
}

TEST(IpcGroup, AKilledRankIsNamed) {
  by_ipc(RankKind::processes, 2,
         [](const auto& group, const auto& inner, at::Device device) {
           const at::Tensor tensor = torch::ones({3}).to(device);
           group->all_reduce(tensor, ReduceOp::sum);
           if (group->rank() == 1) raise(SIGKILL);
           EXPECT_THAT(what_of([&] { group->all_reduce(tensor, ReduceOp::sum); }), HasSubstr("rank 1"));
         },
         {.allowed_signal = SIGKILL});
}

TEST(IpcGroup, ADeviceThatRefusesEndsTheGroupOnAllRanks) {
  support::run_ranks(RankKind::processes, 2, [](auto inner) {
    sim::install(2);
    device::PeerMemory memory = sim::peer_memory();
    // Rank 1 fails; rank 0 comes when rank 1 is gone, and its memory with it.
    memory.open_handle = [](void**, device::MemoryHandle, unsigned) { return 1; };
    if (inner->rank() == 0)
      memory.open_handle = [](void** area, device::MemoryHandle handle, unsigned flags) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (sim::peer_memory().open_handle(area, handle, flags) == 0 && std::chrono::steady_clock::now() < deadline)
          sim::peer_memory().close_handle(*area);
        return 1;
      };
    IpcGroup group(inner, memory);
    const at::Tensor tensor = torch::ones({3}).to(sim::device(0));
    EXPECT_THAT(what_of([&] { group.all_reduce(tensor, ReduceOp::sum); }),
                HasSubstr("ipc: the memory of rank 0 from " + sim::device(0).str() + ": refused by the stand-in"));
  });
}

TEST(IpcGroup, AnAreaTakesWhatLibtorchKeepsOfTheDevice) {
  support::run_ranks(RankKind::processes, 2, [](auto inner) {
    sim::install(2);
    device::PeerMemory memory = sim::peer_memory();
    memory.allocate = [](void** area, std::size_t bytes) {
      const auto books = at::accelerator::getDeviceStats(0);
      const bool keeps = books.reserved_bytes[0].current > books.allocated_bytes[0].current;
      return keeps ? device::kOutOfMemory : sim::peer_memory().allocate(area, bytes);
    };
    IpcGroup group(inner, memory);
    const at::Tensor tensor = torch::ones({3}).to(sim::device(0));
    (void)torch::empty({1000}, sim::device(0));
    group.all_reduce(tensor, ReduceOp::sum);
    EXPECT_EQ(tensor.sum().template item<float>(), 6);
  });
}

// Of the device below: what it says when it is asked for an area, and how often it was.
int said_of_an_area = 0, times_asked = 0;

TEST(IpcGroup, AnAreaIsAskedForTwiceForLackOfMemoryOnly) {
  for (const int error : {device::kOutOfMemory, 1}) {
    said_of_an_area = error;
    times_asked = 0;
    support::run_ranks(RankKind::processes, 2, [](auto inner) {
      sim::install(2);
      device::PeerMemory memory = sim::peer_memory();
      memory.allocate = [](void**, std::size_t) {
        ++times_asked;
        return said_of_an_area;
      };
      IpcGroup group(inner, memory);
      const at::Tensor tensor = torch::ones({3}).to(sim::device(0));
      EXPECT_THAT(what_of([&] { group.all_reduce(tensor, ReduceOp::sum); }),
                  HasSubstr("ipc: 8388608 bytes on " + sim::device(0).str()));
      EXPECT_EQ(times_asked, said_of_an_area == device::kOutOfMemory ? 2 : 1);
    });
  }
}

TEST(IpcGroup, IsForOneNode) {
  support::run_ranks(RankKind::nodes, 2, [](auto inner) {
    EXPECT_THAT(what_of([&] { const IpcGroup group(inner, sim::peer_memory()); }),
                HasSubstr("ipc: memory of devices is shared by ranks of one node, and of 2 ranks 1 are on this one"));
  });
}

}  // namespace
}  // namespace lockstep::comm::ipc
