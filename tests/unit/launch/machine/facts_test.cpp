#include "lockstep/launch/machine/facts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::launch {
namespace {

TEST(Facts, AsText) {
  EXPECT_EQ(facts_as_text({{"versions", {{"lockstep", "0.1.0"}, {"kernel", "a\nb\x1b[0m"}}}, {"environment", {}}}),
            "versions\n  lockstep: 0.1.0\n  kernel: a?b?[0m\n\nenvironment\n  none\n");
}

TEST(Facts, AsJson) {
  const auto root = nlohmann::json::parse(facts_as_json({{"a", {{"x", "1\n\xff"}, {"y", "\""}}}, {"b", {}}}));
  EXPECT_EQ(root, (nlohmann::json{{"a", {{"x", "1\n\xef\xbf\xbd"}, {"y", "\""}}}, {"b", nlohmann::json::object()}}));
}

TEST(Facts, LinesOfKeyAndValue) {
  const std::string info = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R): 2\nprocessor\t: 1\nflags\t\t:\n";
  EXPECT_EQ(line_value(info, "processor"), "0");
  EXPECT_EQ(line_value(info, "model name"), "Intel(R) Xeon(R): 2");
  EXPECT_EQ(line_value(info, "flags"), "");
  EXPECT_EQ(line_value(info, "model"), std::nullopt);
  EXPECT_EQ(line_value("", "model"), std::nullopt);
}

TEST(Facts, Sizes) {
  const std::string info = "MemTotal:       24684096 kB\nHugePages_Total:       0\nBad: x kB\n";
  EXPECT_EQ(size_of_line(info, "MemTotal"), "23.5 GiB");
  EXPECT_EQ(size_of_line(info, "HugePages_Total"), std::nullopt);
  EXPECT_EQ(size_of_line(info, "Bad"), std::nullopt);
  EXPECT_EQ(size_of_line("Node 0 MemTotal:       2048 kB\n", "Node 0 MemTotal"), "2.0 MiB");
}

TEST(Facts, InstructionSets) {
  EXPECT_EQ(instruction_sets("flags\t: fpu avx2 avx512f amx_tile\n"), "avx2, avx512f, amx_tile");
  EXPECT_EQ(instruction_sets("flags\t: fpu avx2x\n")->substr(0, 12), "none of avx2");
  EXPECT_EQ(instruction_sets("Features\t: fp asimd\n"), std::nullopt);
}

TEST(Facts, TheChoiceInBrackets) {
  EXPECT_EQ(bracketed("always [madvise] never\n"), "madvise");
  EXPECT_EQ(bracketed("always never"), std::nullopt);
  EXPECT_EQ(bracketed("] always ["), std::nullopt);
}

TEST(Facts, Distribution) {
  EXPECT_EQ(distribution("NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            "Debian GNU/Linux 12 (bookworm)");
  EXPECT_EQ(distribution("NAME=x\n"), std::nullopt);
}

TEST(Facts, NvidiaDriver) {
  EXPECT_EQ(nvidia_driver("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"),
            "550.54.15");
  EXPECT_EQ(nvidia_driver("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
                          "GCC version:  gcc version 12.2.0\n"),
            "580.65.06");
  EXPECT_EQ(nvidia_driver("something else 1.2"), std::nullopt);
}

TEST(Facts, VariablesThatChangeAJob) {
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "LOCKSTEP_SEGMENT", "PET_NNODES",
                           "TORCHELASTIC_RUN_ID", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "GLOO_SOCKET_IFNAME",
                           "LD_PRELOAD", "MALLOC_ARENA_MAX"})
    EXPECT_TRUE(changes_a_job(name)) << name;
  for (const char* name : {"HOME", "PATH", "AWS_SECRET_ACCESS_KEY", "OMP", "LD_PRELOADED", "MY_NCCL_DEBUG", ""})
    EXPECT_FALSE(changes_a_job(name)) << name;
}

TEST(Facts, SecretsAreHidden) {
  EXPECT_TRUE(is_secret("PET_rdzv_token"));
  EXPECT_TRUE(is_secret("LOCKSTEP_JOB_KEY"));
  EXPECT_TRUE(is_secret("LOCKSTEP_SECRET"));
  EXPECT_TRUE(is_secret("NCCL_PASSWORD_FILE"));
  EXPECT_FALSE(is_secret("OMP_NUM_THREADS"));
  const auto facts = job_variables({"OMP_NUM_THREADS=2=3", "HOME=/x", "LOCKSTEP_TOKEN=abc", "GLOO_X=", "MALLOC_"});
  ASSERT_EQ(facts.size(), 3u);
  EXPECT_EQ(facts[0].name + "=" + facts[0].value, "GLOO_X=");
  EXPECT_EQ(facts[1].name + "=" + facts[1].value, "LOCKSTEP_TOKEN=(hidden)");
  EXPECT_EQ(facts[2].name + "=" + facts[2].value, "OMP_NUM_THREADS=2=3");
}

}  // namespace
}  // namespace lockstep::launch
