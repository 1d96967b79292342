#include "lockstep/device/facts/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace lockstep::device {
namespace {

// Beside this program.
DriverLibraries fake() {
  const std::string file = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libfake_gpu_driver.so";
  return {file, file};
}

class Driver : public testing::Test {
 protected:
  void TearDown() override { unsetenv("LOCKSTEP_FAKE_GPUS"); }
};

TEST_F(Driver, TwoCards) {
  const DriverReport report = ask_driver(fake());
  EXPECT_EQ(report.none, "");
  EXPECT_EQ(report.cuda, 12040);
  EXPECT_EQ(report.version, "550.54.15");
  ASSERT_EQ(report.gpus.size(), 2u);
  EXPECT_EQ(report.gpus[0].name, "Card 0");
  EXPECT_EQ(report.gpus[1].pci_id, "0000:AF:00.0");
  EXPECT_EQ(report.gpus[0].total, 10ull << 30);
  EXPECT_EQ(report.gpus[0].free, 3ull << 30);
  EXPECT_EQ(report.gpus[1].free, std::nullopt);  // unknown to the management library
  EXPECT_EQ(report.gpus[0].compute_major, 8);
  EXPECT_EQ(report.gpus[0].compute_minor, 6);
  EXPECT_EQ(peers_text(report.peers), "all pairs");
}

TEST_F(Driver, PeersThatDoNotReachEachOther) {
  setenv("LOCKSTEP_FAKE_GPUS", "3", 1);
  EXPECT_EQ(peers_text(ask_driver(fake()).peers), "0-1");
}

TEST_F(Driver, WithoutManagementLibraryItsFactsAreNotKnown) {
  DriverLibraries libraries = fake();
  libraries.management = "libno-such-library.so.1";
  const DriverReport report = ask_driver(libraries);
  EXPECT_EQ(report.version, "");
  ASSERT_EQ(report.gpus.size(), 2u);
  EXPECT_EQ(report.gpus[0].free, std::nullopt);
}

TEST_F(Driver, WhyThereIsNone) {
  EXPECT_THAT(ask_driver({.cuda = "libno-such-library.so.1"}).none,
              testing::StartsWith("the NVIDIA driver is not there: libno-such-library.so.1: "));
  EXPECT_EQ(ask_driver({.cuda = "libm.so.6"}).none,
            "the NVIDIA driver is not whole: libm.so.6 lacks functions of CUDA 11");
  setenv("LOCKSTEP_FAKE_GPUS", "0", 1);
  EXPECT_EQ(ask_driver(fake()).none, "the NVIDIA driver shows no GPU");
  setenv("LOCKSTEP_FAKE_GPUS", "broken", 1);
  EXPECT_EQ(ask_driver(fake()).none, "the NVIDIA driver says: unknown error");
}

TEST_F(Driver, WhetherItIsThereIsAskedWithoutStartingIt) {
  EXPECT_EQ(why_no_driver(fake()), "");
  EXPECT_THAT(why_no_driver({.cuda = "libno-such-library.so.1"}), testing::StartsWith("libno-such-library.so.1: "));
}

TEST_F(Driver, PeersInWords) {
  EXPECT_EQ(peers_text({}), "none");
  EXPECT_EQ(peers_text({{true}}), "none");
  EXPECT_EQ(peers_text({{true, false}, {true, true}}), "none");  // one way only
}

TEST_F(Driver, NcclCountsInTwoWays) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(21003), "2.10.3");
  EXPECT_EQ(nccl_version_text(2803), "2.8.3");
}

TEST_F(Driver, NcclIsLookedForWhereTheVariableSays) {
  setenv("LOCKSTEP_NCCL", "libm.so.6", 1);
  EXPECT_EQ(nccl_version("/nowhere"), "");
  unsetenv("LOCKSTEP_NCCL");
}

}  // namespace
}  // namespace lockstep::device
