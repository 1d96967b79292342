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

using Nodes = std::vector<std::optional<int>>;

// Two nodes of four cores and two cards each; `model` of the last card.
class GpusOfTwoNodes : public NumaOfGpus {
 protected:
  void make(const std::string& model) const {
    const char* ids[] = {"0000:1a:00.0", "0000:3b:00.0", "0000:af:00.0", "0000:d8:00.0"};
    for (int i = 0; i < 4; ++i) {
      write("driver/nvidia/gpus/" + std::string(ids[i]) + "/information",
            "Model: \t " + (i == 3 ? model : "Card") + "\nIRQ: " + std::to_string(i) + "\n");
      write("bus/pci/devices/" + std::string(ids[i]) + "/numa_node", i < 2 ? "0\n" : "1\n");
    }
    write("devices/system/node/node0/cpulist", "0-2,8\n");
    write("devices/system/node/node1/cpulist", "4-7\n");
  }
  Nodes nodes(const std::optional<std::string>& visible = {}, const std::optional<std::string>& order = {}) const {
    return numa_nodes_of_gpus(visible, order, root_, root_);
  }
};

TEST_F(GpusOfTwoNodes, InCudasNumbering) {
  make("Card");
  EXPECT_EQ(nodes(), (Nodes{0, 0, 1, 1}));
  EXPECT_EQ(nodes("3,0"), (Nodes{1, 0}));
  EXPECT_EQ(nodes(""), Nodes{});
  EXPECT_EQ(nodes("2,-1,0"), Nodes{1});
  EXPECT_EQ(nodes("2,7,0"), Nodes{1}) << "CUDA ends the list at a number that there is not";
  EXPECT_EQ(nodes("GPU-1234"), Nodes{});
}

TEST_F(GpusOfTwoNodes, NumberingOfDifferentCardsIsKnownByTheBusAlone) {
  make("Another card");
  EXPECT_EQ(nodes(), Nodes{});
  EXPECT_EQ(nodes({}, "FASTEST_FIRST"), Nodes{});
  EXPECT_EQ(nodes({}, "PCI_BUS_ID"), (Nodes{0, 0, 1, 1}));
}

TEST_F(GpusOfTwoNodes, CoresNearEachWorkersGpu) {
  make("Card");
  EXPECT_THAT(cores_of_node(0, root_), testing::ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(cores_of_node(5, root_), testing::IsEmpty());
  const std::vector<int> allowed = {0, 1, 2, 3, 5, 6};
  using Cores = std::vector<std::vector<int>>;
  EXPECT_EQ(cores_near_gpus({0, 1, 2, 3}, {0, 0, 1, 1}, allowed, root_), (Cores{{0, 1, 2}, {0, 1, 2}, {5, 6}, {5, 6}}));
  EXPECT_EQ(cores_near_gpus({2, 2}, {0, 0, 1, 1}, allowed, root_), (Cores{{5, 6}, {5, 6}})) << "cuda:2 for both";
  EXPECT_EQ(cores_near_gpus({0, 1, 9}, {std::nullopt, 0}, {4, 5}, root_), (Cores{{}, {}, {}}));
}

}  // namespace
}  // namespace lockstep::device
