#include "lockstep/launch/report/out_of_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>

#include "tests/support/control_group.h"

namespace lockstep::launch {
namespace {

using testing::OwnControlGroup;

const std::string kByLimit = "out of memory: the kernel killed it (memory limit of its control group: 32.0 MiB)";
const std::string kByMachine = "out of memory: the kernel killed it (the machine is out of memory)";

// As Linux 6.18 writes it into /dev/kmsg.
std::string group_record(int pid, int limit_kib) {
  return "6,905,84403163,-;memory: usage 32768kB, limit " + std::to_string(limit_kib) +
         "kB, failcnt 26\n3,918,84403200,-;Memory cgroup out of memory: Killed process " + std::to_string(pid) +
         " (trainer) total-vm:266388kB, anon-rss:31744kB, UID:0 pgtables:108kB oom_score_adj:0\n";
}

std::string machine_record(int pid) {
  return "3,918,84403200,-;Out of memory: Killed process " + std::to_string(pid) + " (trainer) total-vm:266388kB\n";
}

OutOfMemoryEvidence quiet() {
  OutOfMemoryEvidence evidence;
  evidence.before = evidence.after = {.machine_kills = 4, .group_kills = 2};
  return evidence;
}

TEST(ExplainKill, TheLogNamesTheProcess) {
  OutOfMemoryEvidence evidence = quiet();
  evidence.kernel_log = group_record(123, 32768);
  EXPECT_EQ(explain_kill(evidence, 123, SIGKILL), kByLimit);
  evidence.kernel_log = machine_record(123);
  EXPECT_EQ(explain_kill(evidence, 123, SIGKILL), kByMachine);
}

TEST(ExplainKill, TheLogNamesOthersOnly) {
  OutOfMemoryEvidence evidence = quiet();
  evidence.after = {.machine_kills = 6, .group_kills = 4};
  evidence.kernel_log = machine_record(1234) + group_record(12, 32768);
  EXPECT_EQ(explain_kill(evidence, 123, SIGKILL), std::nullopt);
}

TEST(ExplainKill, EachKillHasItsOwnReason) {
  OutOfMemoryEvidence evidence = quiet();
  evidence.kernel_log = group_record(5, 65536) + machine_record(6) + group_record(7, 32768);
  EXPECT_EQ(explain_kill(evidence, 6, SIGKILL), kByMachine);
  EXPECT_EQ(explain_kill(evidence, 7, SIGKILL), kByLimit);
}

TEST(ExplainKill, TheLimitIsOursWhereTheLogLeavesItOut) {
  OutOfMemoryEvidence evidence = quiet();
  evidence.kernel_log = "3,1,1,-;Memory cgroup out of memory: Killed process 8 (x)\n";
  evidence.limit = 32 << 20;
  EXPECT_EQ(explain_kill(evidence, 8, SIGKILL), kByLimit);
}

TEST(ExplainKill, WordsOfOlderKernels) {
  OutOfMemoryEvidence evidence = quiet();
  evidence.limit = 32 << 20;
  evidence.kernel_log =
      "3,1,1,-;Memory cgroup out of memory: Kill process 8 (x) score 967 or sacrifice child\n"
      "3,2,1,-;Killed process 8 (x) total-vm:1kB\n";
  EXPECT_EQ(explain_kill(evidence, 8, SIGKILL), kByLimit);
}

TEST(ExplainKill, OtherSignalsAreNotTheKernels) {
  OutOfMemoryEvidence evidence = quiet();
  evidence.kernel_log = machine_record(123);
  EXPECT_EQ(explain_kill(evidence, 123, SIGTERM), std::nullopt);
  EXPECT_EQ(explain_kill(evidence, 123, 0), std::nullopt);
}

TEST(ExplainKill, CountersWithoutALog) {
  OutOfMemoryEvidence evidence = quiet();
  EXPECT_EQ(explain_kill(evidence, 123, SIGKILL), std::nullopt);
  evidence.after = {.machine_kills = 5, .group_kills = 3};
  EXPECT_EQ(explain_kill(evidence, 123, SIGKILL), kByMachine);
  evidence.after.group_was_full = true;
  evidence.limit = 32 << 20;
  EXPECT_EQ(explain_kill(evidence, 123, SIGKILL), kByLimit);
}

TEST(ExplainKill, StrangersKillsAreNotOurs) {
  OutOfMemoryEvidence evidence = quiet();
  evidence.after.machine_kills = 5;
  EXPECT_EQ(explain_kill(evidence, 123, SIGKILL), std::nullopt);
}

TEST(ExplainKill, TheMachinesCounterAlone) {
  OutOfMemoryEvidence evidence;
  EXPECT_EQ(explain_kill(evidence, 123, SIGKILL), std::nullopt);
  evidence.before.machine_kills = 4;
  evidence.after.machine_kills = 5;
  EXPECT_EQ(explain_kill(evidence, 123, SIGKILL), kByMachine);
}

TEST(ExplainKill, ALogThatLostRecords) {
  OutOfMemoryEvidence evidence = quiet();
  evidence.kernel_log = machine_record(77);
  evidence.after = {.machine_kills = 6, .group_kills = 4};
  EXPECT_EQ(untold_kills(evidence), 1u);
  EXPECT_EQ(explain_kill(evidence, 123, SIGKILL), kByMachine);
}

// ---------------------------------------------------------------- the kernel itself

constexpr std::size_t kLimit = 32 << 20;

// Never outside the group, and never much more than its limit.
[[noreturn]] void take_too_much(const OwnControlGroup& group) {
  if (!group.enter()) _exit(99);
  const auto limited = base::limited_memory_groups();
  if (limited.empty() || limited.front().limit != kLimit) _exit(98);
  constexpr std::size_t bytes = 4 * kLimit;
  auto* memory = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (std::size_t at = 0; memory != MAP_FAILED && at < bytes; at += 4096) memory[at] = 1;
  _exit(97);
}

int status_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

class OutOfMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!group_.made()) GTEST_SKIP() << group_.why_not();
    const bool v2 = group_.version() == 2;
    if (!group_.write(v2 ? "memory.max" : "memory.limit_in_bytes", std::to_string(kLimit)))
      GTEST_SKIP() << "the memory limit of a control group cannot be set here";
    // Swap would take what the limit refuses; where there is none, there is no such file.
    group_.write(v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes", v2 ? "0" : std::to_string(kLimit));
  }

  OwnControlGroup group_{"memory", "memory.limit_in_bytes", "memory.max"};
};

TEST_F(OutOfMemory, IsToldFromAPlainKill) {
  OutOfMemoryWatch watch;
  if (access("/dev/kmsg", R_OK) != 0) GTEST_SKIP() << "the kernel's log cannot be read here";
  const pid_t greedy = fork();
  if (greedy == 0) take_too_much(group_);
  const pid_t plain = fork();
  if (plain == 0) {
    pause();
    _exit(0);
  }
  kill(plain, SIGKILL);
  const int greedy_status = status_of(greedy);
  ASSERT_TRUE(WIFSIGNALED(greedy_status)) << "exit code " << WEXITSTATUS(greedy_status);
  ASSERT_EQ(WTERMSIG(greedy_status), SIGKILL);
  ASSERT_EQ(WTERMSIG(status_of(plain)), SIGKILL);
  // The kernel leaves the limit out when it has much to log, and this process has no limit.
  EXPECT_THAT(watch.explain(greedy, SIGKILL).value_or("nothing"),
              ::testing::StartsWith("out of memory: the kernel killed it (memory limit of its control group"));
  EXPECT_EQ(watch.explain(plain, SIGKILL), std::nullopt);
  EXPECT_EQ(watch.explain(greedy, SIGTERM), std::nullopt);
  watch.reset();
  EXPECT_EQ(watch.explain(greedy, SIGKILL), std::nullopt);
}

// As an agent inside a container sees it: it shares the group with its worker.
TEST_F(OutOfMemory, IsCountedInTheGroup) {
  if (access("/proc/self/oom_score_adj", W_OK) != 0 || geteuid() != 0) GTEST_SKIP() << "needs an agent that is spared";
  const pid_t agent = fork();
  if (agent == 0) {
    std::ofstream("/proc/self/oom_score_adj") << -1000;
    if (!group_.enter()) _exit(99);
    OutOfMemoryEvidence evidence;
    evidence.before = base::out_of_memory_counts();
    const pid_t greedy = fork();
    if (greedy == 0) {
      std::ofstream("/proc/self/oom_score_adj") << 1000;
      take_too_much(group_);
    }
    if (WTERMSIG(status_of(greedy)) != SIGKILL) _exit(98);
    evidence.after = base::out_of_memory_counts();
    evidence.limit = kLimit;
    _exit(explain_kill(evidence, greedy, SIGKILL) == kByLimit ? 0 : 1);
  }
  const int status = status_of(agent);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(OutOfMemoryWatch, ItsDescriptorIsNotInherited) {
  const int next = dup(STDERR_FILENO);
  close(next);
  OutOfMemoryWatch watch;
  const int flags = fcntl(next, F_GETFD);
  if (flags < 0) GTEST_SKIP() << "the kernel's log cannot be read here";
  EXPECT_TRUE(flags & FD_CLOEXEC);
}

}  // namespace
}  // namespace lockstep::launch
