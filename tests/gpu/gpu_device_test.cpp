// Choosing a GPU, page-locked shared memory and copies from it, and what the driver reports.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <torch/torch.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/choice.h"
#include "lockstep/device/facts/driver.h"
#include "lockstep/device/host_registration.h"
#include "lockstep/device/out_of_memory.h"

namespace lockstep::device {
namespace {

class GpuDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_none(find_cuda()); !why.empty()) GTEST_SKIP() << why;
    device_ = choose("cuda", 0);
  }
  at::Device device_ = at::kCPU;
};

// Two mappings of one memfd, as processes of a node have them; the second is read-only.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : bytes_(bytes), file_(memfd_create("gpu_device_test", MFD_CLOEXEC)) {
    if (ftruncate(file_, off_t(bytes)) != 0) throw_errno("ftruncate");
    writable_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    readable_ = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file_, 0);
  }
  ~SharedMemory() {
    munmap(writable_, bytes_);
    munmap(readable_, bytes_);
    close(file_);
  }
  std::span<std::byte> writable() const { return {static_cast<std::byte*>(writable_), bytes_}; }
  std::span<std::byte> readable() const { return {static_cast<std::byte*>(readable_), bytes_}; }

 private:
  std::size_t bytes_;
  int file_;
  void* writable_;
  void* readable_;
};

TEST_F(GpuDevice, ChosenByLocalRankByNumberAndByItself) {
  EXPECT_EQ(device_, at::Device(at::kCUDA, 0));
  EXPECT_EQ(choose("auto", 0), device_);
  EXPECT_EQ(choose("cuda:0", 5), device_);
  const int devices = find_cuda().devices;
  EXPECT_THROW(choose("cuda", devices), UsageError);
  EXPECT_THROW(choose("cuda:" + std::to_string(devices), 0), UsageError);
}

TEST_F(GpuDevice, ComputesWhatTheCpuComputes) {
  torch::manual_seed(1);
  const torch::Tensor a = torch::randn({64, 64}, torch::kDouble);
  EXPECT_TRUE(torch::allclose(a.to(device_).mm(a.to(device_)).cpu(), a.mm(a)));
}

TEST_F(GpuDevice, SharedMemoryIsPageLockedAndCopiedAsynchronously) {
  constexpr std::size_t kBytes = 8 << 20;
  const SharedMemory memory(kBytes);
  torch::Tensor host = torch::from_blob(memory.writable().data(), {std::int64_t(kBytes / 4)}, torch::kFloat)
                           .copy_(torch::arange(kBytes / 4));
  {
    const HostRegistration registration(memory.writable(), device_);
    EXPECT_TRUE(registration.registered()) << registration.refusal();
    EXPECT_TRUE(host.is_pinned());
    const torch::Tensor there = host.to(device_, /*non_blocking=*/true);
    EXPECT_TRUE(torch::equal(there.cpu(), host));
  }
  EXPECT_FALSE(host.is_pinned());
}

TEST_F(GpuDevice, PartOfAPageRegistersThePage) {
  const SharedMemory memory(1 << 16);
  const HostRegistration registration(memory.writable().subspan(100, 5000), device_);
  EXPECT_TRUE(registration.registered()) << registration.refusal();
}

TEST_F(GpuDevice, RefusedMemoryIsToldAndLeavesNoErrorBehind) {
  const SharedMemory memory(1 << 16);
  const HostRegistration first(memory.writable(), device_);
  ASSERT_TRUE(first.registered()) << first.refusal();
  const HostRegistration second(memory.writable(), device_);
  EXPECT_FALSE(second.registered());
  EXPECT_NE(second.refusal(), "");
  EXPECT_EQ(torch::ones({3}, device_).sum().item<float>(), 3);
}

// Not every driver can do it; then it says so, and the copy is as right.
TEST_F(GpuDevice, ReadOnlyMappingServesForCopiesToTheDevice) {
  const SharedMemory memory(1 << 20);
  torch::from_blob(memory.writable().data(), {1 << 18}, torch::kFloat).fill_(7);
  const HostRegistration registration(memory.readable(), device_);
  RecordProperty("read_only_mapping", registration.registered() ? "registered" : registration.refusal());
  std::cout << "read-only mapping: " << (registration.registered() ? "registered" : registration.refusal()) << "\n";
  EXPECT_NE(registration.registered(), !registration.refusal().empty());
  const torch::Tensor host = torch::from_blob(memory.readable().data(), {1 << 18}, torch::kFloat);
  EXPECT_EQ(host.to(device_, /*non_blocking=*/true).sum().item<float>(), 7.0f * (1 << 18));
}

TEST_F(GpuDevice, OutOfMemoryIsOneLine) {
  try {
    torch::empty({1LL << 42}, torch::TensorOptions(device_).dtype(torch::kByte));
    FAIL();
  } catch (const c10::OutOfMemoryError& error) {
    const std::string line = out_of_memory_line(error.what_without_backtrace(), 3);
    std::cout << line << "\n";
    EXPECT_THAT(line, testing::StartsWith("rank 3: out of memory on cuda:0: asked for 4096.00 GiB, free are "));
    EXPECT_EQ(line.find('\n'), std::string::npos);
  }
}

TEST_F(GpuDevice, DriverReportsWhatTheRuntimeCounts) {
  const DriverReport report = ask_driver();
  EXPECT_EQ(report.none, "");
  const CudaFacts facts = find_cuda();
  EXPECT_EQ(int(report.gpus.size()), facts.devices);
  EXPECT_EQ(report.cuda, facts.driver);
  for (const Gpu& gpu : report.gpus) {
    std::cout << gpu.name << ", " << gpu.pci_id << ", NUMA node " << gpu.numa_node.value_or(-1) << ", "
              << gpu.free.value_or(0) << " of " << gpu.total << " bytes free, driver " << report.version << "\n";
    EXPECT_NE(gpu.name, "");
    EXPECT_NE(gpu.pci_id, "");
    EXPECT_GT(gpu.total, std::uint64_t(1) << 30);
    EXPECT_GE(gpu.compute_major, 5);
  }
}

}  // namespace
}  // namespace lockstep::device
