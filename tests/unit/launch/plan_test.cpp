#include "lockstep/launch/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

const Attempt kAttempt{.run_id = "abc", .master_port = 4711, .segment_path = "/proc/9/fd/3", .cores = 8};

TEST(WorkerEnvironment, IsTorchruns) {
  const Plan plan{.command = {"program"}, .workers = 3};
  EXPECT_THAT(
      worker_environment({}, plan, kAttempt, 2),
      UnorderedElementsAre("RANK=2", "LOCAL_RANK=2", "ROLE_RANK=2", "GROUP_RANK=0", "WORLD_SIZE=3",
                           "LOCAL_WORLD_SIZE=3", "ROLE_WORLD_SIZE=3", "GROUP_WORLD_SIZE=1", "ROLE_NAME=default",
                           "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4711", "TORCHELASTIC_RESTART_COUNT=0",
                           "TORCHELASTIC_MAX_RESTARTS=0", "TORCHELASTIC_RUN_ID=abc",
                           "TORCHELASTIC_USE_AGENT_STORE=False", "OMP_NUM_THREADS=2", "LOCKSTEP_SEGMENT=/proc/9/fd/3"));
}

TEST(WorkerEnvironment, KeepsTheRestAndReplacesWhatWasThere) {
  const Environment environment =
      worker_environment({"HOME=/h", "MASTER_PORT=1", "MASTER_PORTS=2", "RANKING=3"}, {}, kAttempt, 0);
  EXPECT_THAT(environment, Contains("HOME=/h"));
  EXPECT_THAT(environment, Contains("MASTER_PORTS=2"));
  EXPECT_THAT(environment, Contains("RANKING=3"));
  EXPECT_THAT(environment, Contains("MASTER_PORT=4711"));
  EXPECT_THAT(environment, Not(Contains("MASTER_PORT=1")));
}

TEST(WorkerEnvironment, TheUsersThreadCountWins) {
  const Environment environment = worker_environment({"OMP_NUM_THREADS=7"}, {}, kAttempt, 0);
  EXPECT_THAT(environment, Contains(StartsWith("OMP_NUM_THREADS=")).Times(1));
  EXPECT_THAT(environment, Contains("OMP_NUM_THREADS=7"));
}

TEST(WorkerEnvironment, NeverLessThanOneThread) {
  EXPECT_THAT(worker_environment({}, {.workers = 64}, kAttempt, 0), Contains("OMP_NUM_THREADS=1"));
}

TEST(ResolveCommand, PythonForScriptsOnly) {
  EXPECT_THAT(resolve_command({"train.py", "--lr"}), ElementsAre("python3", "-u", "train.py", "--lr"));
  EXPECT_THAT(resolve_command({"./train", "x.py"}), ElementsAre("./train", "x.py"));
}

TEST(FindProgram, AsTheShellDoes) {
  EXPECT_EQ(find_program("./a/b", "/bin"), "./a/b");
  EXPECT_EQ(find_program("sh", "/nowhere:/bin"), "/bin/sh");
  EXPECT_EQ(find_program("sh", "/nowhere"), "");
  EXPECT_EQ(find_program("etc", "/"), "") << "a folder is no program";
  EXPECT_EQ(find_program("passwd", "/etc"), "") << "not executable";
}

}  // namespace
}  // namespace lockstep::launch
