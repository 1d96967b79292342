#include "lockstep/base/control_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/cores.h"
#include "lockstep/base/segment.h"
#include "tests/support/control_group.h"

namespace lockstep::base {
namespace {

using ::testing::ElementsAre;
using testing::OwnControlGroup;

constexpr const char* kVersion1 =
    "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

TEST(ControlGroups, OfVersion1BesideAUnifiedOne) {
  const auto groups = control_groups(kVersion1, "4:memory:/jobs/17\n1:cpu,cpuacct:/\n0::/user\n", "memory");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].version, 1);
  EXPECT_THAT(groups[0].folders,
              ElementsAre("/sys/fs/cgroup/memory/jobs/17", "/sys/fs/cgroup/memory/jobs", "/sys/fs/cgroup/memory"));
  EXPECT_EQ(groups[1].version, 2);
  EXPECT_THAT(groups[1].folders, ElementsAre("/sys/fs/cgroup/unified/user", "/sys/fs/cgroup/unified"));
}

TEST(ControlGroups, AControllerThatSharesAHierarchy) {
  const auto groups = control_groups(kVersion1, "1:cpu,cpuacct:/a:b\n", "cpu");
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_THAT(groups[0].folders, ElementsAre("/sys/fs/cgroup/cpu/a:b", "/sys/fs/cgroup/cpu"));
  EXPECT_TRUE(control_groups(kVersion1, "1:cpu,cpuacct:/\n", "cpuset").empty());
  EXPECT_TRUE(control_groups(kVersion1, "1:cpuset:/\n", "cpu").empty());
}

TEST(ControlGroups, OfVersion2) {
  const auto groups =
      control_groups("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n", "0::/a/b\n", "cpu");
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_THAT(groups[0].folders, ElementsAre("/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"));
}

// A container sees its own part of the hierarchy at the mount point.
TEST(ControlGroups, InAContainer) {
  const std::string mount = "9 8 0:9 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  const auto folders = [&](const std::string& group) {
    return control_groups(mount, "4:memory:" + group, "memory").at(0).folders;
  };
  EXPECT_THAT(folders("/docker/x"), ElementsAre("/sys/fs/cgroup/memory"));
  EXPECT_THAT(folders("/docker/x/y"), ElementsAre("/sys/fs/cgroup/memory/y", "/sys/fs/cgroup/memory"));
  EXPECT_THAT(folders("/docker/xy"), ElementsAre("/sys/fs/cgroup/memory"));
  EXPECT_THAT(folders("/"), ElementsAre("/sys/fs/cgroup/memory"));
}

TEST(ControlGroups, OutsideOfTheNamespaceAndWithBlanks) {
  const std::string mount = "9 8 0:9 / /mnt/control\\040groups rw - cgroup2 cgroup2 rw\n";
  EXPECT_THAT(control_groups(mount, "0::/../other\n", "cpu").at(0).folders, ElementsAre("/mnt/control groups"));
  EXPECT_THAT(control_groups(mount, "0::/a\n", "cpu").at(0).folders,
              ElementsAre("/mnt/control groups/a", "/mnt/control groups"));
}

TEST(ControlGroups, TextsOfAnotherForm) {
  EXPECT_TRUE(control_groups("", "", "cpu").empty());
  EXPECT_TRUE(control_groups("- - -\n -\nx - cgroup2\n", ":\n::\n0\n\n", "cpu").empty());
}

TEST(ControlGroupRules, Cores) {
  EXPECT_EQ(cores_of_cpu_max("200000 100000\n"), 2);
  EXPECT_EQ(cores_of_cpu_max("150000 100000"), 1.5);
  EXPECT_EQ(cores_of_cpu_max("max 100000\n"), std::nullopt);
  EXPECT_EQ(cores_of_cpu_max(""), std::nullopt);
  EXPECT_EQ(cores_of_cpu_max("100000 0"), std::nullopt);
  EXPECT_EQ(cores_of_cfs("50000\n", "100000\n"), 0.5);
  EXPECT_EQ(cores_of_cfs("-1\n", "100000\n"), std::nullopt);
  EXPECT_EQ(cores_of_cfs("", "100000\n"), std::nullopt);
}

TEST(ControlGroupRules, Memory) {
  EXPECT_EQ(limit_of_memory("33554432\n"), 33554432u);
  EXPECT_EQ(limit_of_memory("max\n"), std::nullopt);
  EXPECT_EQ(limit_of_memory("9223372036854771712\n"), std::nullopt);
  EXPECT_EQ(limit_of_memory(""), std::nullopt);
  EXPECT_EQ((MemoryGroup{"", 10, 12}.room()), 0u);
  EXPECT_EQ((MemoryGroup{"", 12, 10}.room()), 2u);
}

TEST(ControlGroupRules, Keys) {
  const std::string events = "low 0\noom 3\noom_kill 2\n";
  EXPECT_EQ(value_of_key(events, "oom"), 3u);
  EXPECT_EQ(value_of_key(events, "oom_kill"), 2u);
  EXPECT_EQ(value_of_key(events, "oom_group_kill"), std::nullopt);
  EXPECT_EQ(value_of_key("oom many\noom_kill 2\n", "oom_kill"), std::nullopt);
}

TEST(ControlGroup, TheKernelCountsItsKills) {
  const OutOfMemoryCounts counts = out_of_memory_counts();
  EXPECT_TRUE(counts.machine_kills.has_value());
}

// Runs `body` in a child that has entered the group; its exit code.
int in_group(const OwnControlGroup& group, int (*body)()) {
  const pid_t child = fork();
  if (child == 0) _exit(group.enter() ? body() : 99);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

TEST(ControlGroup, AProcessorLimitCutsTheUsableCores) {
  const OwnControlGroup group("cpu", "cpu.cfs_quota_us", "cpu.max");
  if (!group.made()) GTEST_SKIP() << group.why_not();
  if (affinity_cores() < 2) GTEST_SKIP() << "a single core cannot become fewer";
  ASSERT_TRUE(group.version() == 2 ? group.write("cpu.max", "50000 100000") : group.write("cpu.cfs_quota_us", "50000"));
  EXPECT_EQ(in_group(group, [] { return control_group_cores() == 0.5 ? usable_cores() : 98; }), 1);
  ASSERT_TRUE(group.version() == 2 ? group.write("cpu.max", "max") : group.write("cpu.cfs_quota_us", "-1"));
  const int outside = usable_cores();
  EXPECT_GE(in_group(group, [] { return usable_cores(); }), outside);
}

TEST(ControlGroup, AMemoryLimitCutsTheAvailableMemory) {
  const OwnControlGroup group("memory", "memory.limit_in_bytes", "memory.max");
  if (!group.made()) GTEST_SKIP() << group.why_not();
  ASSERT_TRUE(group.write(group.version() == 2 ? "memory.max" : "memory.limit_in_bytes", "67108864"));
  EXPECT_EQ(in_group(group,
                     [] {
                       const auto groups = limited_memory_groups();
                       if (groups.empty() || groups.front().limit != 67108864) return 1;
                       if (groups.front().used > groups.front().limit) return 2;
                       return available_memory() <= 67108864 ? 0 : 3;
                     }),
            0);
}

}  // namespace
}  // namespace lockstep::base
