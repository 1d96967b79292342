#include "lockstep/device/facts/numa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace lockstep::device {
namespace {

class NumaOfGpus : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "numa_test_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::filesystem::path root_;
};

TEST_F(NumaOfGpus, NodeAsTheKernelHasIt) {
  write("bus/pci/devices/0000:3b:00.0/numa_node", "0\n");
  write("bus/pci/devices/0000:af:00.0/numa_node", "1\n");
  EXPECT_EQ(numa_node_of("0000:3b:00.0", root_), 0);
  EXPECT_EQ(numa_node_of("0000:AF:00.0", root_), 1);
  EXPECT_EQ(numa_node_of("00000000:AF:00.0", root_), 1);
}

TEST_F(NumaOfGpus, DomainOfMoreThanFourDigitsStays) {
  write("bus/pci/devices/10000:01:00.0/numa_node", "3\n");
  EXPECT_EQ(numa_node_of("00010000:01:00.0", root_), 3);
}

TEST_F(NumaOfGpus, NothingWhereTheKernelDoesNotSay) {
  write("bus/pci/devices/0000:3b:00.0/numa_node", "-1\n");
  write("bus/pci/devices/0000:3c:00.0/numa_node", "");
  EXPECT_EQ(numa_node_of("0000:3b:00.0", root_), std::nullopt);
  EXPECT_EQ(numa_node_of("0000:3c:00.0", root_), std::nullopt);
  EXPECT_EQ(numa_node_of("0000:3d:00.0", root_), std::nullopt);
  EXPECT_EQ(numa_node_of("", root_), std::nullopt);
}

TEST_F(NumaOfGpus, GpusOfTheDriverInTheOrderOfTheBus) {
  EXPECT_THAT(gpus_of_driver(root_), testing::IsEmpty());
  write("driver/nvidia/gpus/0000:af:00.0/information", "Model: B\n");
  write("driver/nvidia/gpus/0000:3b:00.0/information", "Model: A\n");
  EXPECT_THAT(gpus_of_driver(root_), testing::ElementsAre("0000:3b:00.0", "0000:af:00.0"));
}

}  // namespace
}  // namespace lockstep::device
