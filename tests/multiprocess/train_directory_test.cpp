// Whose a run directory is: of one job and all its attempts, under each launcher.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/train_run.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::Job;
using testing::operator+;
using testing::wait_until;
using testing::Words;

class TrainDirectory : public ::testing::Test {
 protected:
  Words train(const Words& more = {}) const {
    return Words{LOCKSTEP_PROGRAM,
                 "train",
                 "--dataset",
                 "mnist",
                 "--data-path",
                 set_,
                 "--model",
                 "mlp",
                 "--opt",
                 "sgd",
                 "--lr",
                 "0.1",
                 "--no-eval",
                 "--output-dir",
                 run_,
                 "--threads",
                 "1"} +
           more;
  }
  Words short_run(const Words& more = {}) const { return train(Words{"--max-steps", "2"} + more); }

  // A worker as torchrun starts it: with static rendezvous its run id is `none`, whatever the job.
  static Words torchrun(int attempt) {
    return testing::rank_variables(0, 1, 29531) +
           Words{"TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=" + std::to_string(attempt)};
  }
  static Words srun(const std::string& job, int attempt) {
    return {"SLURM_PROCID=0",         "SLURM_LOCALID=0",      "SLURM_STEP_TASKS_PER_NODE=1",
            "SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_ID=0",      "SLURM_JOB_ID=" + job,
            "SLURM_NODEID=0",         "SLURM_CLUSTER_NAME=c", "SLURM_RESTART_COUNT=" + std::to_string(attempt)};
  }

  void expect_done(const Words& command, const Words& variables, int starts) const {
    Job job(command, variables);
    EXPECT_EQ(job.wait(), 0) << job.err();
    EXPECT_EQ(count_starts(), starts);
  }
  void expect_refused(const Words& command, const Words& variables, const std::string& reason) const {
    const std::string before = metrics();
    Job job(command, variables);
    EXPECT_EQ(job.wait(), 2) << job.out();
    EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
    EXPECT_THAT(job.err(), HasSubstr("output directory '" + run_ + "': " + reason));
    EXPECT_EQ(metrics(), before);
  }

  std::string metrics() const { return testing::read_file(run_ + "/metrics.jsonl"); }
  int count_starts() const {
    const auto lines = testing::lines(metrics());
    return int(std::ranges::count_if(lines, [](const auto& line) { return line.starts_with(R"({"event":"start")"); }));
  }

  testing::ScratchFolder folder_;
  const std::string set_ = testing::write_mnist(folder_);
  const std::string run_ = folder_.file("run");
};

constexpr const char* kUsed = "already holds a run";

TEST_F(TrainDirectory, ARestartedAttemptGetsNobodyElsesResults) {
  expect_done(short_run(), {}, 1);
  expect_refused(short_run(), torchrun(1), kUsed);
  expect_refused(short_run(), srun("78", 1), kUsed);
  expect_done(short_run({"--overwrite"}), torchrun(1), 1);  // replaced, though it is no first attempt
}

TEST_F(TrainDirectory, AttemptsOfOneJobOfTorchrunShareIt) {
  expect_done(short_run(), torchrun(0), 1);
  expect_done(short_run(), torchrun(1), 2);
  expect_done(short_run({"--overwrite"}), torchrun(2), 3);
  expect_refused(short_run(), torchrun(0), kUsed);  // the next job, with the same id
}

TEST_F(TrainDirectory, AJobThatSlurmQueuesAgainGoesOnInItsOwn) {
  expect_done(short_run(), srun("77", 0), 1);
  expect_done(short_run(), srun("77", 1), 2);
  expect_refused(short_run(), srun("78", 2), kUsed);
}

TEST_F(TrainDirectory, OnlyOneLivingJobWritesThere) {
  Job job(train({"-n", "2", "--max-steps", "100000000", "--print-freq", "1"}));
  wait_until([&] { return !testing::lines(job.out()).empty() || !job.err().empty(); });
  Job second(short_run({"--overwrite"}));
  EXPECT_EQ(second.wait(), 2);
  EXPECT_THAT(second.err(), HasSubstr("output directory '" + run_ + "': a running job writes there"));
  job.signal(SIGKILL);  // leaves no lock
  job.wait();
  ASSERT_TRUE(job.nothing_left());
  expect_done(short_run({"--overwrite"}), {}, 1);
}

}  // namespace
}  // namespace lockstep
