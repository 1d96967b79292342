// What `lockstep train` does before any trainer runs: checks flags once, decides whether it is
// the agent or a worker, and passes everything on. The trainer here is a script.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Job;

// A copy of the lockstep program beside a trainer that prints its place and its arguments.
class TrainCommand : public ::testing::Test {
 protected:
  TrainCommand() {
    namespace fs = std::filesystem;
    std::string name = (fs::temp_directory_path() / "lockstep-test-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    fs::copy_file(LOCKSTEP_PROGRAM, folder_ / "lockstep");
    std::ofstream(folder_ / "lockstep-trainer") << "#!/bin/sh\necho \"rank $RANK of $WORLD_SIZE: $*\"\n";
    fs::permissions(folder_ / "lockstep-trainer", fs::perms::owner_all);
  }
  ~TrainCommand() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> train(std::vector<std::string> flags) const {
    flags.insert(flags.begin(), {(folder_ / "lockstep").string(), "train"});
    return flags;
  }

  std::filesystem::path folder_;
};

std::vector<std::string> torchrun(int rank, int world) {
  const std::string r = std::to_string(rank);
  const std::string w = std::to_string(world);
  return {"RANK=" + r,        "WORLD_SIZE=" + w, "LOCAL_RANK=" + r, "LOCAL_WORLD_SIZE=" + w, "MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=29500"};
}

TEST_F(TrainCommand, IsTheAgentOfItsTrainers) {
  Job job(train({"--nproc_per_node", "2", "--lr", "0.5"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(testing::lines(job.out()), ::testing::UnorderedElementsAre("rank 0 of 2: --nproc_per_node 2 --lr 0.5",
                                                                         "rank 1 of 2: --nproc_per_node 2 --lr 0.5"));
}

TEST_F(TrainCommand, StartsOneTrainerByDefault) {
  Job job(train({"--epochs", "2"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "rank 0 of 1: --epochs 2\n");
}

TEST_F(TrainCommand, IsTheTrainerUnderALauncher) {
  Job job(train({"--epochs", "2"}), torchrun(1, 4));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "rank 1 of 4: --epochs 2\n");
}

TEST_F(TrainCommand, ASingleSlurmTaskMayStartSeveral) {
  Job job(train({"-n", "2"}), {"SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_LOCALID=0", "SLURM_STEP_TASKS_PER_NODE=1",
                               "SLURM_JOB_ID=1", "SLURM_STEP_ID=0"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(testing::lines(job.out()).size(), 2u);
}

TEST_F(TrainCommand, StartsAsManyTrainersAsThereAreGpus) {
  Job job(train({"--nproc-per-node", "gpu"}), {"CUDA_VISIBLE_DEVICES=3,4,7"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(testing::lines(job.out()).size(), 3u);
  Job none(train({"--nproc-per-node", "gpu"}), {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(none.wait(), 2);
  EXPECT_EQ(none.err(), "lockstep: error: --nproc-per-node gpu: this machine shows no NVIDIA GPU\n");
  Job told(train({"--nproc-per-node", "gpu"}), torchrun(0, 2));
  EXPECT_EQ(told.wait(), 2);
  EXPECT_THAT(told.err(), HasSubstr("--nproc-per-node gpu is the launcher's, and torchrun has started 2 processes"));
}

// Without a driver for that, with one for the second process.
TEST_F(TrainCommand, GpusThatAreNotThereAreToldOnceAndStartNothing) {
  Job job(train({"-n", "2", "--device", "cuda"}), {"CUDA_VISIBLE_DEVICES=0"});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
  EXPECT_THAT(job.err(), ::testing::AnyOf(HasSubstr("device cuda: no CUDA device: the NVIDIA driver is not there"),
                                          HasSubstr("local rank 1 has no GPU of its own: this node has 1 GPU (CUDA_")));
  EXPECT_EQ(job.out(), "");
}

TEST_F(TrainCommand, WrongFlagsAreToldOnceAndStartNothing) {
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"-n", "4", "--optt", "sgd"}, {"-n", "4", "--opt", "sdg"}, {"-n", "0"}, {"-n", "4", "--lr", "fast"}}) {
    Job job(train(flags));
    EXPECT_EQ(job.wait(), 2) << flags.back();
    EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
    EXPECT_EQ(job.out(), "");
  }
}

TEST_F(TrainCommand, ProcessCountsUnderALauncherAreRefused) {
  Job job(train({"-n", "2"}), torchrun(0, 2));
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("--nproc-per-node 2"), HasSubstr("torchrun has started 2 processes")));
  EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
}

TEST_F(TrainCommand, RestartsAreTheLaunchersThatStarts) {
  Job again(train({"-n", "2", "--max-restarts", "1"}));
  EXPECT_EQ(again.wait(), 0) << again.err();
  Job job(train({"--max-restarts", "1"}), torchrun(0, 2));
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("--max-restarts"), HasSubstr("give it to torchrun")));
}

TEST_F(TrainCommand, LogsAreThoseOfTheLauncher) {
  const std::string logs = (folder_ / "logs").string();
  Job job(train({"-n", "2", "--log-dir", logs, "--redirects", "0:1", "--tee", "1:1", "--grace-period", "2.5"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.out(), HasSubstr("[default1]:rank 1 of 2: -n 2"));
  EXPECT_THAT(job.out(), ::testing::Not(HasSubstr("rank 0"))) << "it is in a file";
  std::string files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(logs))
    if (entry.path().filename() == "stdout.log") files += testing::read_file(entry.path());
  EXPECT_THAT(files, AllOf(HasSubstr("rank 0 of 2"), HasSubstr("rank 1 of 2")));
  for (const auto& [flags, wrong] :
       {std::pair(std::vector<std::string>{"-n", "2", "--tee", "2:1"}, "--tee"),
        std::pair(std::vector<std::string>{"--redirects", "out"}, "--redirects 'out'"),
        std::pair(std::vector<std::string>{"--grace-period", "0"}, "--grace-period '0'")}) {
    Job refused(train(flags));
    EXPECT_EQ(refused.wait(), 2) << wrong;
    EXPECT_THAT(refused.err(), HasSubstr(wrong));
    EXPECT_EQ(testing::lines(refused.err()).size(), 1u) << refused.err();
  }
  Job elsewhere(train({"--tee", "3"}), torchrun(0, 2));
  EXPECT_EQ(elsewhere.wait(), 2);
  EXPECT_THAT(elsewhere.err(), HasSubstr("--tee 3 is the launcher's, and torchrun has started this job"));
}

TEST_F(TrainCommand, RanksUnderALauncherDoNotComplainInChorus) {
  // What torchrun does: rank 0 ends with 2, so the other ranks are ended.
  Job rank_one(train({"--optt", "sgd"}), torchrun(1, 2));
  Job rank_zero(train({"--optt", "sgd"}), torchrun(0, 2));
  EXPECT_EQ(rank_zero.wait(), 2);
  rank_one.signal(SIGTERM);
  rank_one.wait();
  EXPECT_EQ(testing::lines(rank_zero.err()).size(), 1u);
  EXPECT_EQ(rank_one.err(), "");
}

TEST_F(TrainCommand, HelpStartsNothing) {
  Job job(train({"--help"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.out(), HasSubstr("--nproc-per-node"));
  EXPECT_EQ(job.err(), "");
}

}  // namespace
}  // namespace lockstep
