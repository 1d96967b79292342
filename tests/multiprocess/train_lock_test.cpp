// The lock of a run directory: who goes on from a checkpoint chooses it once nobody else writes there, and the launcher
// saves nothing into a directory that another job has gone on in.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <csignal>
#include <filesystem>
#include <stdexcept>

#include "lockstep/base/unique_fd.h"
#include "tests/multiprocess/resumed_run.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Job;
using testing::Words;
using testing::operator+;

class TrainLock : public TrainResume {
 protected:
  // As another job has it, until it is closed; waits for a free one.
  base::UniqueFd locked() const {
    base::UniqueFd file(::open(lock_.c_str(), O_RDWR | O_CLOEXEC));
    testing::wait_until([&] { return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0; });
    return file;
  }
  // Whether rank 0 of the job has come to the lock.
  bool is_at_lock(const Job& job) const {
    try {
      const std::string files = "/proc/" + std::to_string(testing::pid_of_rank(job, 0)) + "/fd";
      for (const auto& entry : fs::directory_iterator(files))
        if (std::error_code gone; fs::read_symlink(entry, gone) == lock_) return true;
    } catch (const std::runtime_error&) {  // there is no rank 0 yet, or no more
    }
    return false;
  }

  const std::string run_ = folder_.file("run"), lock_ = run_ + "/run.lock";
};

// The job before saves its last step while the next one waits for it.
TEST_F(TrainLock, ACheckpointIsChosenOnceTheDirectoryIsTheJobsOwn) {
  const Words flags = {"--epochs", "2", "--save-every", "4", "--no-eval", "--output-dir"};
  ended(1, flags + Words{run_, "--max-steps", "4"});
  ended(1, flags + Words{folder_.file("more"), "--max-steps", "8"});
  base::UniqueFd lock = locked();
  Job job = start(1, flags + Words{run_, "--max-steps", "12", "--resume", "auto"});
  testing::wait_until([&] { return is_at_lock(job) || testing::process_state(job.pid()) == 'Z'; });
  fs::rename(folder_.file("more/checkpoints/step-00000008"), run_ + "/checkpoints/step-00000008");
  fs::remove(run_ + "/checkpoints/last");
  fs::create_symlink("step-00000008", run_ + "/checkpoints/last");
  lock = {};
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("going on from '" + run_ + "/checkpoints/step-00000008', behind step 8 of 12"));
}

// On NFS its lock outlives it for a while.
TEST_F(TrainLock, WhoResumesWaitsForTheLockOfAnotherMachine) {
  const Words flags = {"--epochs", "2", "--save-every", "4", "--no-eval", "--output-dir", run_};
  ended(1, flags + Words{"--max-steps", "4"});
  folder_.write("run/run.lock", "another boot\n");
  base::UniqueFd lock = locked();
  Job job = start(1, flags + Words{"--max-steps", "8", "--resume", "auto"});
  testing::wait_until([&] {
    return job.err().find("locked by a job on another machine") != std::string::npos ||
           testing::process_state(job.pid()) == 'Z';
  });
  lock = {};
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("going on from '" + run_ + "/checkpoints/step-00000004', behind step 4 of 8"));
}

// The other ranks would else give up first, and say less.
TEST_F(TrainLock, WhoResumesWaitsNoLongerThanItsTimeout) {
  const Words flags = {"--epochs", "2", "--save-every", "4", "--no-eval", "--output-dir", run_};
  ended(1, flags + Words{"--max-steps", "4"});
  folder_.write("run/run.lock", "another boot\n");
  const base::UniqueFd lock = locked();
  Job job = start(1, flags + Words{"--max-steps", "8", "--resume", "auto", "--timeout", "4"});
  EXPECT_EQ(job.wait(), 1) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("waiting for 3 s at most"));
  EXPECT_THAT(job.err(), HasSubstr("a job on another machine writes there"));
}

TEST_F(TrainLock, TheLauncherSavesNothingWhereAnotherJobHasGoneOn) {
  Job job = start(2, {"--epochs", "100000", "--no-eval", "--output-dir", run_, "--save-every", "1000s"});
  testing::wait_until([&] { return reported() >= 6; });
  kill(job.pid(), SIGSTOP);
  testing::wait_until([&] { return testing::process_state(job.pid()) == 'T'; });
  for (const int rank : {0, 1}) kill(testing::pid_of_rank(job, rank), SIGKILL);
  const base::UniqueFd lock = locked();
  kill(job.pid(), SIGCONT);
  EXPECT_EQ(job.wait(), 137) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("is not saved: output directory '" + run_ + "': a running job writes there"));
  EXPECT_FALSE(fs::exists(run_ + "/checkpoints/last"));
}

// It may be the one for which this job was refused, or has made the folder anew.
TEST_F(TrainLock, TheLauncherSavesNothingWhereAnotherProgramSaves) {
  Job job = start(2, {"--epochs", "100000", "--no-eval", "--output-dir", run_, "--save-every", "1000s"});
  testing::wait_until([&] { return reported() >= 6; });
  const std::string checkpoints = run_ + "/checkpoints";
  fs::remove_all(checkpoints);
  fs::create_directories(checkpoints);
  const base::UniqueFd other(::open((checkpoints + "/.lock").c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_EQ(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
  kill(testing::pid_of_rank(job, 0), SIGKILL);
  EXPECT_EQ(job.wait(), 137) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("is not saved: checkpoints in '" + checkpoints + "': another program that is"));
  EXPECT_FALSE(fs::exists(checkpoints + "/last"));
}

}  // namespace
}  // namespace lockstep
