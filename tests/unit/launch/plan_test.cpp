#include "lockstep/launch/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

const Attempt kAttempt{.run_id = "abc",
                       .restart_count = 2,
                       .master_port = 4711,
                       .segment_path = "/proc/9/fd/3",
                       .store = "here",
                       .cores = 8};

Environment environment_of(const Environment& inherited, const Plan& plan, int local_rank = 0) {
  return worker_environment(inherited, plan, kAttempt, local_rank, "/e.json");
}

TEST(WorkerEnvironment, IsTorchruns) {
  const Plan plan{.command = {"program"}, .workers = 3, .max_restarts = 4, .logs = {.role = "trainer"}};
  EXPECT_THAT(environment_of({}, plan, 2),
              UnorderedElementsAre(
                  "RANK=2", "LOCAL_RANK=2", "ROLE_RANK=2", "GROUP_RANK=0", "WORLD_SIZE=3", "LOCAL_WORLD_SIZE=3",
                  "ROLE_WORLD_SIZE=3", "GROUP_WORLD_SIZE=1", "ROLE_NAME=trainer", "MASTER_ADDR=127.0.0.1",
                  "MASTER_PORT=4711", "TORCHELASTIC_RESTART_COUNT=2", "TORCHELASTIC_MAX_RESTARTS=4",
                  "TORCHELASTIC_RUN_ID=abc", "TORCHELASTIC_ERROR_FILE=/e.json", "TORCHELASTIC_USE_AGENT_STORE=False",
                  "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
                  "OMP_NUM_THREADS=2", "LOCKSTEP_SEGMENT=/proc/9/fd/3", "LOCKSTEP_AGENT_STORE=here"));
}

TEST(WorkerEnvironment, RanksAreCountedThroughTheNodes) {
  const Plan plan{.workers = 3, .node = {.rank = 1, .nodes = 3, .first_rank = 4, .ranks_after = 2}};
  EXPECT_EQ(world_size(plan), 9);
  EXPECT_EQ(world_size({.workers = 3}), 3) << "alone by default";
  EXPECT_THAT(environment_of({}, plan, 2),
              AllOf(Contains("RANK=6"), Contains("LOCAL_RANK=2"), Contains("ROLE_RANK=6"), Contains("GROUP_RANK=1"),
                    Contains("WORLD_SIZE=9"), Contains("LOCAL_WORLD_SIZE=3"), Contains("ROLE_WORLD_SIZE=9"),
                    Contains("GROUP_WORLD_SIZE=3")));
}

TEST(WorkerEnvironment, KeepsTheRestAndReplacesWhatWasThere) {
  const Environment environment = environment_of({"HOME=/h", "MASTER_PORT=1", "MASTER_PORTS=2", "RANKING=3"}, {});
  EXPECT_THAT(environment, Contains("HOME=/h"));
  EXPECT_THAT(environment, Contains("MASTER_PORTS=2"));
  EXPECT_THAT(environment, Contains("RANKING=3"));
  EXPECT_THAT(environment, Contains("MASTER_PORT=4711"));
  EXPECT_THAT(environment, Not(Contains("MASTER_PORT=1")));
}

TEST(WorkerEnvironment, TheUsersThreadCountWins) {
  const Environment environment = environment_of({"OMP_NUM_THREADS=7"}, {});
  EXPECT_THAT(environment, Contains(StartsWith("OMP_NUM_THREADS=")).Times(1));
  EXPECT_THAT(environment, Contains("OMP_NUM_THREADS=7"));
  EXPECT_THAT(environment_of({"OMP_NUM_THREADS="}, {.workers = 4}), Contains("OMP_NUM_THREADS=2"))
      << "an empty one is none, as OpenMP reads it";
}

TEST(WorkerEnvironment, NeverLessThanOneThread) {
  EXPECT_THAT(environment_of({}, {.workers = 64}), Contains("OMP_NUM_THREADS=1"));
}

TEST(WorkerEnvironment, VirtualLocalRanksSeeOneGpuEach) {
  const Plan plan{.workers = 2, .virtual_local_rank = true};
  EXPECT_THAT(environment_of({}, plan, 1), AllOf(Contains("LOCAL_RANK=0"), Contains("CUDA_VISIBLE_DEVICES=1")));
  EXPECT_THAT(environment_of({"CUDA_VISIBLE_DEVICES=5,GPU-7"}, plan, 1), Contains("CUDA_VISIBLE_DEVICES=GPU-7"));
  EXPECT_THAT(environment_of({}, {.workers = 2}, 1), Not(Contains(StartsWith("CUDA_VISIBLE_DEVICES="))));
  EXPECT_THROW(environment_of({"CUDA_VISIBLE_DEVICES=5"}, plan, 1), UsageError);
}

TEST(ThreadsNote, IsSaidWhereWeDecide) {
  EXPECT_EQ(threads_note({.workers = 2}, {}, 8), "lockstep: OMP_NUM_THREADS=4 for each of 2 workers (8 cores)\n");
  EXPECT_EQ(threads_note({.workers = 2}, {}, 1), "lockstep: OMP_NUM_THREADS=1 for each of 2 workers (1 core)\n");
  EXPECT_EQ(threads_note({.workers = 1}, {}, 8), "");
  EXPECT_EQ(threads_note({.workers = 2}, {"OMP_NUM_THREADS=3"}, 8), "");
}

TEST(WorkerCommand, TheLocalRankIsFilledIn) {
  EXPECT_THAT(
      worker_command({"p", "--local-rank=${local_rank}", "${local_rank}${local_rank}", "$local_rank", "$$"}, 12),
      ElementsAre("p", "--local-rank=12", "1212", "$local_rank", "$$"));
}

TEST(ResolveCommand, PythonForScripts) {
  EXPECT_THAT(resolve_command({"train.py", "--lr"}, Start::by_name, "python3"),
              ElementsAre("python3", "-u", "train.py", "--lr"));
  EXPECT_THAT(resolve_command({"./train", "x.py"}, Start::by_name, "python3"), ElementsAre("./train", "x.py"));
  EXPECT_THAT(resolve_command({"train.py"}, Start::program, "python3"), ElementsAre("train.py"));
  EXPECT_THAT(resolve_command({"train"}, Start::python, "p"), ElementsAre("p", "-u", "train"));
  EXPECT_THAT(resolve_command({"pkg.train", "-x"}, Start::module, "p"),
              ElementsAre("p", "-u", "-m", "pkg.train", "-x"));
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
