#include "lockstep/device/facts/decision.h"

#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::device {
namespace {

CudaFacts gpus(int devices) { return {.driver = 13020, .runtime = 13000, .devices = devices}; }

std::string refusal(std::string_view text, int local_rank, const CudaFacts& facts) {
  try {
    decide(parse_wanted(text), local_rank, facts);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceDecision, RankHasTheGpuOfItsNumber) {
  EXPECT_EQ(decide(parse_wanted("cuda"), 0, gpus(2)), 0);
  EXPECT_EQ(decide(parse_wanted("cuda"), 1, gpus(2)), 1);
  EXPECT_EQ(decide(parse_wanted("auto"), 1, gpus(2)), 1);
}

TEST(DeviceDecision, AllRanksShareTheOneThatIsNamed) {
  for (int rank : {0, 1, 7}) EXPECT_EQ(decide(parse_wanted("cuda:1"), rank, gpus(2)), 1);
}

TEST(DeviceDecision, CpuNeedsNothing) {
  EXPECT_EQ(decide(parse_wanted("cpu"), 5, {.no_library = "none"}), std::nullopt);
  EXPECT_EQ(decide(parse_wanted("cpu"), 5, gpus(2)), std::nullopt);
}

TEST(DeviceDecision, AutoIsTheCpuWhereNoGpuCanBeUsed) {
  EXPECT_EQ(decide(parse_wanted("auto"), 0, gpus(0)), std::nullopt);
  EXPECT_EQ(decide(parse_wanted("auto"), 0, {.no_library = "none"}), std::nullopt);
  EXPECT_EQ(decide(parse_wanted("auto"), 0, {.no_driver = "none", .devices = 1}), std::nullopt);
  EXPECT_EQ(decide(parse_wanted("auto"), 0, {.driver = 12040, .runtime = 13000, .devices = 1}), std::nullopt);
}

TEST(DeviceDecision, MoreRanksThanGpus) {
  EXPECT_EQ(
      refusal("cuda", 3, gpus(2)),
      "local rank 3 has no GPU of its own: this node has 2 GPUs: --nproc-per-node 2, or --device cuda:0 for all ranks "
      "on the first one");
  EXPECT_EQ(refusal("auto", 1, gpus(1)),
            "local rank 1 has no GPU of its own: this node has 1 GPU: --nproc-per-node 1, or --device cuda:0 for all "
            "ranks on "
            "the first one");
  CudaFacts facts = gpus(1);
  facts.visible = "3";
  EXPECT_EQ(
      refusal("cuda", 1, facts),
      "local rank 1 has no GPU of its own: this node has 1 GPU (CUDA_VISIBLE_DEVICES is '3'): --nproc-per-node 1, or "
      "--device cuda:0 for all ranks on the first one");
}

TEST(DeviceDecision, NumberBeyondTheGpus) {
  EXPECT_EQ(refusal("cuda:2", 0, gpus(2)), "device cuda:2: this process may use 2 GPUs: cuda:0 to cuda:1");
  EXPECT_EQ(refusal("cuda:1", 0, gpus(1)), "device cuda:1: this process may use 1 GPU: cuda:0");
}

TEST(DeviceDecision, LibtorchForCpusOnly) {
  EXPECT_EQ(refusal("cuda", 0, {.no_library = "this libtorch is for CPUs only"}),
            "device cuda: this libtorch is for CPUs only");
}

TEST(DeviceDecision, NoDriver) {
  EXPECT_EQ(
      refusal("cuda", 0, {.no_driver = "libcuda.so.1: cannot open shared object file", .runtime = 13000}),
      "device cuda: no CUDA device: the NVIDIA driver is not there: libcuda.so.1: cannot open shared object file");
}

TEST(DeviceDecision, DriverTooOldTellsBothVersions) {
  EXPECT_EQ(
      refusal("cuda", 0, {.driver = 12040, .runtime = 13000, .error = "CUDA driver version is insufficient"}),
      "device cuda: the NVIDIA driver is too old: it can do CUDA 12.4, and libtorch needs 13.0: a newer driver, or a "
      "libtorch for CUDA 12");
  // Of one major version each runs with each.
  EXPECT_EQ(decide(parse_wanted("cuda"), 0, {.driver = 13000, .runtime = 13020, .devices = 1}), 0);
}

TEST(DeviceDecision, NoDevice) {
  CudaFacts facts = gpus(0);
  EXPECT_EQ(refusal("cuda", 0, facts), "device cuda: no CUDA device");
  facts.error = "no CUDA-capable device is detected";
  EXPECT_EQ(refusal("cuda", 0, facts),
            "device cuda: no CUDA device: the driver says: no CUDA-capable device is detected");
  facts.visible = "";
  EXPECT_EQ(
      refusal("cuda", 0, facts),
      "device cuda: no CUDA device: CUDA_VISIBLE_DEVICES is '': the driver says: no CUDA-capable device is detected");
}

TEST(DeviceDecision, LauncherRefusesWhatItKnows) {
  const auto refused = [](std::string_view text, int workers, const CudaFacts& facts) -> std::string {
    try {
      require_for_workers(parse_wanted(text), workers, facts);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  const CudaFacts none{.no_driver = "libcuda.so.1: not there"};
  EXPECT_EQ(refused("cuda", 4, {.devices = 2}).substr(0, 61),
            "local rank 3 has no GPU of its own: this node has 2 GPUs: --n");
  EXPECT_EQ(refused("cuda", 2, {.devices = 2}), "");
  EXPECT_EQ(refused("cuda:0", 4, {.devices = 1}), "");
  EXPECT_EQ(refused("cuda:1", 1, {.devices = 1}), "device cuda:1: this process may use 1 GPU: cuda:0");
  EXPECT_EQ(refused("cuda", 1, none),
            "device cuda: no CUDA device: the NVIDIA driver is not there: libcuda.so.1: not there");
  EXPECT_EQ(refused("cuda", 4, {}), "") << "the workers know more";
  for (const char* text : {"auto", "cpu"}) EXPECT_EQ(refused(text, 4, none), "");
}

TEST(DeviceDecision, VersionsAsPeopleWriteThem) {
  EXPECT_EQ(cuda_version(13020), "13.2");
  EXPECT_EQ(cuda_version(12000), "12.0");
}

}  // namespace
}  // namespace lockstep::device
