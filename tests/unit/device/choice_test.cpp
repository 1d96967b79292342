#include "lockstep/device/choice.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda_library.h"
#include "lockstep/device/cuda_runtime.h"

namespace lockstep::device {
namespace {

// What this machine has decides what can be seen here; with a GPU tests/gpu sees the rest.
bool gpu_is_here() { return why_none(find_cuda()).empty(); }

std::string refusal(std::string_view text, int local_rank) {
  try {
    choose(text, local_rank);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool is_mapped(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(name) != std::string::npos) return true;
  return false;
}

TEST(DeviceChoice, CpuLoadsNothing) {
  EXPECT_EQ(choose("cpu", 3), at::Device(at::kCPU));
  EXPECT_FALSE(is_mapped("libtorch_cuda.so"));
}

TEST(DeviceChoice, UnknownTextIsRefusedBeforeAnythingIsLookedFor) {
  EXPECT_THAT(refusal("cdua", 0), testing::HasSubstr("did you mean 'cuda'"));
}

TEST(DeviceChoice, WithoutGpuAutoIsTheCpuAndCudaIsRefusedInOneLine) {
  if (gpu_is_here()) GTEST_SKIP() << "this machine has a GPU: tests/gpu has the cases";
  EXPECT_EQ(choose("auto", 0), at::Device(at::kCPU));
  const std::string why = refusal("cuda", 0);
  EXPECT_EQ(why, "device cuda: " + why_none(find_cuda()));
  EXPECT_EQ(why.find('\n'), std::string::npos);
  EXPECT_FALSE(is_mapped("libtorch_cuda.so"));
}

TEST(DeviceChoice, LibrariesAreSoughtBesideLibtorch) {
  EXPECT_TRUE(std::filesystem::exists(libtorch_file("libtorch_cpu.so"))) << libtorch_file("libtorch_cpu.so");
}

TEST(DeviceChoice, RuntimeIsFoundWhereLibtorchBringsIt) {
  const CudaRuntime* const runtime = cuda_runtime();
  if (runtime == nullptr) GTEST_SKIP() << "this libtorch brings no libcudart";
  int version = 0;
  EXPECT_EQ(runtime->runtime_version(&version), 0);
  EXPECT_GE(version, 12000);
  EXPECT_STREQ(words_of(*runtime, 100), "no CUDA-capable device is detected");
}

// Ends the process, with 2 and the line when it is refused.
[[noreturn]] void load_and_exit() {
  try {
    load_cuda_library();
  } catch (const UsageError& error) {
    std::cerr << error.what() << "\n";
    std::_Exit(2);
  }
  std::_Exit(at::Context::hasCUDART() ? 0 : 1);
}

TEST(DeviceChoice, CudaPartOfLibtorchLoadsIntoAProgramOfTheCpuPart) {
  if (const std::string why = why_no_cuda_library(); !why.empty()) GTEST_SKIP() << why;
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(load_and_exit(), testing::ExitedWithCode(0), "");
}

TEST(DeviceChoice, LibtorchThatWasAskedBeforeStaysWithoutCuda) {
  if (const std::string why = why_no_cuda_library(); !why.empty()) GTEST_SKIP() << why;
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        at::Context::hasCUDA();
        load_and_exit();
      },
      testing::ExitedWithCode(2), "asked about CUDA before its CUDA part was loaded");
}

}  // namespace
}  // namespace lockstep::device
