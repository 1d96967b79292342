#include "lockstep/launch/machine/gpu_facts.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

device::DriverReport two_cards() {
  return {
      .cuda = 13000,
      .version = "580.95.05",
      .gpus =
          {{.name = "Card A",
            .pci_id = "0000:3b:00.0",
            .total = 80ull << 30,
            .free = 79ull << 30,
            .numa_node = 0,
            .compute_major = 9},
           {.name = "Card B", .pci_id = "0000:af:00.0", .total = 8ull << 30, .compute_major = 8, .compute_minor = 6}},
      .peers = {{true, true}, {true, true}}};
}

TEST(GpuFacts, EachCardAndHowTheyReachEachOther) {
  EXPECT_EQ(facts_as_text({gpu_section(two_cards(), "580.95.05")}),
            "GPUs\n"
            "  driver: 580.95.05, CUDA 13.0\n"
            "  NVIDIA: 2\n"
            "  GPU 0: Card A, 80.0 GiB (79.0 GiB free), compute capability 9.0, 0000:3b:00.0, NUMA node 0\n"
            "  GPU 1: Card B, 8.0 GiB, compute capability 8.6, 0000:af:00.0\n"
            "  peer access: all pairs\n");
}

TEST(GpuFacts, NoneIsToldWithItsReason) {
  const device::DriverReport none{.none = "the NVIDIA driver is not there: libcuda.so.1: no such file"};
  EXPECT_EQ(facts_as_text({gpu_section(none, std::nullopt)}),
            "GPUs\n  NVIDIA: none (the NVIDIA driver is not there: libcuda.so.1: no such file)\n");
  // Loaded by the kernel, but hidden from this container.
  EXPECT_EQ(gpu_section(none, "550.54").facts.front().value, "550.54");
}

TEST(GpuFacts, DriverBySelfOrByKernel) {
  EXPECT_EQ(driver_text({.cuda = 12040}, "550.54"), "550.54, CUDA 12.4");
  EXPECT_EQ(driver_text({}, std::nullopt), "unknown");
}

}  // namespace
}  // namespace lockstep::launch
