#include "lockstep/launch/machine/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

#include "lockstep/launch/machine/machine_report.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kEnough{30'000};

ProbeResult shell(const std::string& script, milliseconds deadline = kEnough) {
  return run_probe({"/bin/sh", "-c", script}, deadline);
}

TEST(Probe, BringsBothStreamsAndTheStatus) {
  const ProbeResult result = shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
  ASSERT_TRUE(result.status.has_value());
  EXPECT_EQ(WEXITSTATUS(*result.status), 3);
}

TEST(Probe, OfAMissingProgram) {
  const ProbeResult result = run_probe({"/no/such/program"}, kEnough);
  EXPECT_FALSE(result.status.has_value());
  EXPECT_EQ(result.err, "No such file or directory");
}

TEST(Probe, TooSlow) {
  const ProbeResult result = shell("echo begun; exec sleep 60", milliseconds(200));
  EXPECT_FALSE(result.status.has_value());
  EXPECT_EQ(result.err, "no answer within 200 ms");
}

TEST(Probe, ClosedStreamsAreNoEnd) {
  const ProbeResult result = shell("exec >&- 2>&-; sleep 0.1; exit 4");
  ASSERT_TRUE(result.status.has_value());
  EXPECT_EQ(WEXITSTATUS(*result.status), 4);
}

TEST(Probe, WhatItLeavesBehindIsNotWaitedFor) {
  const ProbeResult result = shell("sleep 5 & echo $!");
  ASSERT_TRUE(result.status.has_value());
  const int left_behind = std::stoi(result.out);
  EXPECT_EQ(kill(left_behind, SIGKILL), 0);  // it lived on
}

TEST(Probe, MuchOutputIsCut) {
  const ProbeResult result = shell("head -c 1000000 /dev/zero");
  EXPECT_EQ(result.out.size(), std::size_t(64) << 10);
  EXPECT_EQ(result.status, 0);
}

TEST(LibtorchSection, KeysAndValues) {
  const Section section = libtorch_section("/x/trainer", {0, "version=2.11.0\nnoise\nlibrary=/a=b\n", "warning\n"});
  ASSERT_EQ(section.facts.size(), 3u);
  EXPECT_EQ(section.facts[1].name, "version");
  EXPECT_EQ(section.facts[1].value, "2.11.0");
  EXPECT_EQ(section.facts[2].value, "/a=b");
}

TEST(LibtorchSection, WhyItIsUnknown) {
  const auto why = [](const ProbeResult& probe) { return libtorch_section("/x", probe).facts.at(1).value; };
  EXPECT_EQ(why({127 << 8, "", "trainer: error while loading shared libraries: libtorch_cpu.so: cannot open\n"}),
            "unknown (lockstep-trainer: exit code 127: trainer: error while loading shared libraries: libtorch_cpu.so: "
            "cannot open)");
  EXPECT_EQ(why({SIGILL, "", ""}), "unknown (lockstep-trainer: signal 4)");
  EXPECT_EQ(why({std::nullopt, "", "no answer within 5000 ms"}), "unknown (no answer within 5000 ms)");
  EXPECT_THAT(why({0, "", ""}), HasSubstr("said nothing"));
}

}  // namespace
}  // namespace lockstep::launch
