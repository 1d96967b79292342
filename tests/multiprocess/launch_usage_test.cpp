// What `lockstep` and `lockstep run` accept and refuse: one clear line, the right exit code.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::Job;

// Runs `lockstep <arguments>`; expects the exit code and a single line that holds `words`.
void expect_refused(std::vector<std::string> arguments, int code, const std::string& words,
                    const std::vector<std::string>& variables = {}) {
  arguments.insert(arguments.begin(), LOCKSTEP_PROGRAM);
  Job job(arguments, variables);
  EXPECT_EQ(job.wait(), code) << words;
  EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
  EXPECT_THAT(job.err(), HasSubstr(words));
  EXPECT_EQ(job.out(), "");
  EXPECT_TRUE(job.nothing_left());
}

std::string out_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), LOCKSTEP_PROGRAM);
  Job job(arguments);
  EXPECT_EQ(job.wait(), 0) << job.err();
  return job.out();
}

class Folder {
 public:
  Folder() { mkdtemp(name_); }
  ~Folder() {
    unlink(file("program.py").c_str());
    unlink(file("lockstep-toy").c_str());
    rmdir(name_);
  }
  std::string path() const { return name_; }
  std::string file(const std::string& name) const { return std::string(name_) + "/" + name; }
  void write(const std::string& name, const std::string& text, mode_t mode) const {
    std::ofstream(file(name)) << text;
    chmod(file(name).c_str(), mode);
  }

 private:
  char name_[32] = "/tmp/lockstep-test-XXXXXX";
};

// However many descriptors there are: one line that names the limit, and nobody is left of the workers that run
// already.
TEST(RunUsage, NoFileDescriptorsAreLeft) {
  const testing::ScratchFolder folder;
  const std::string shell = folder.write("shell", "#!/bin/sh\nexec sleep 600\n");
  chmod(shell.c_str(), 0700);
  const std::string hosts = "--hosts a,b,c,d,e,f,g,h,i,j,k,l,m --insecure --remote-shell " + shell + " true";
  for (const std::string& rest :
       {std::string("-n 48 sleep 600"), "-n 48 -r 3 --log-dir " + folder.path() + " sleep 600", hosts}) {
    for (const int limit : {16, 24, 33, 40}) {
      const std::string so_many = "ulimit -n " + std::to_string(limit) + "; exec " + LOCKSTEP_PROGRAM + " run " + rest;
      Job job({"/bin/sh", "-c", so_many});
      EXPECT_EQ(job.wait(), 1) << so_many;
      EXPECT_EQ(testing::lines(job.err()).size(), 1u) << so_many << "\n" << job.err();
      EXPECT_THAT(job.err(), HasSubstr("Too many open files: this process may have " + std::to_string(limit)));
      EXPECT_TRUE(job.nothing_left()) << so_many;
    }
  }
}

TEST(RunUsage, ProgramsThatCannotBeExecuted) {
  expect_refused({"run", "-n", "4", "no-such-program"}, 127, "cannot execute 'no-such-program'");
  expect_refused({"run", "-n", "4", "./no-such-program"}, 127, "No such file or directory");
  expect_refused({"run", "-n", "4", "/etc/passwd"}, 126, "cannot execute '/etc/passwd': Permission denied");
  expect_refused({"run", "-n", "4", "no-such.py"}, 127, "cannot read 'no-such.py'");
  const Folder folder;
  folder.write("lockstep-toy", "#!/no/such/interpreter\n", 0755);
  expect_refused({"run", folder.file("lockstep-toy")}, 127, "interpreter in its first line is missing");
}

TEST(RunUsage, WrongFlags) {
  expect_refused({"run", "-n", "0", "true"}, 2, "--nproc-per-node '0' is not a number from 1 to 512");
  expect_refused({"run", "--nproc-per-nod", "2", "true"}, 2, "did you mean '--nproc-per-node'?");
  expect_refused({"run", "--nnodes", "3:2", "true"}, 2, "--nnodes '3:2' is not a range MIN:MAX");
  expect_refused({"run", "-n", "2"}, 2, "no program given");
  expect_refused({"run", "-n", "2", "-r", "9:3", "true"}, 2,
                 "--redirects: there is no local rank 9; the job has 0 to 1");
  expect_refused({"run", "--report", "/no/such/folder/report.json", "true"}, 2, "/no/such/folder");
  expect_refused({"run", "true"}, 2, "PET_GRACE_PERIOD 'x'", {"PET_GRACE_PERIOD=x"});
}

TEST(RunUsage, TheEnvironmentSpeaksToo) {
  Job job({LOCKSTEP_PROGRAM, "run", "sh", "-c", "echo $WORLD_SIZE"}, {"PET_NPROC_PER_NODE=3"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "3\n3\n3\n");
}

TEST(RunUsage, AsManyNodesAsTheSchedulerSays) {
  const std::vector<std::string> slurm = {"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[3]", "SLURM_JOB_NUM_NODES=1",
                                          "SLURM_NODEID=0"};
  Job job({LOCKSTEP_PROGRAM, "run", "--nnodes", "auto", "-n", "2", "sh", "-c", "echo $WORLD_SIZE"}, slurm);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "2\n2\n");
  expect_refused({"run", "--nnodes", "auto", "true"}, 2, "no scheduler has started this process");
  expect_refused({"run", "--nnodes", "auto", "true"}, 2, "start the launcher by srun --ntasks-per-node=1",
                 {"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[3-4]"});
  expect_refused({"run", "--nnodes", "auto", "true"}, 2, "SLURM_JOB_NODELIST=n[3-: at character 5",
                 {"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[3-"});
  expect_refused({"run", "--nnodes", "auto", "true"}, 2,
                 "the scheduler does not say where the nodes can meet (Open MPI",
                 {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
                  "OMPI_COMM_WORLD_LOCAL_SIZE=1"});
}

TEST(RunUsage, DryRunStartsNothing) {
  const std::string text = out_of({"run", "--dry-run", "-n", "2", "no-such-program", "a b"});
  EXPECT_THAT(text, HasSubstr("rank 1: no-such-program 'a b'"));
}

TEST(RunUsage, OmpThreadsAreSaidInOneLine) {
  Job job({LOCKSTEP_PROGRAM, "run", "-n", "2", "true"}, {"OMP_NUM_THREADS="});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.err(), ::testing::MatchesRegex("lockstep: OMP_NUM_THREADS=[0-9]+ for each of 2 workers .*\n"));
}

TEST(RunUsage, TheProgramsOwnFlagsAreItsOwn) {
  EXPECT_EQ(out_of({"run", "echo", "-n2", "--help", "--grace_period"}), "-n2 --help --grace_period\n");
  EXPECT_EQ(out_of({"run", "--", "echo", "x"}), "x\n");
}

TEST(RunUsage, PythonScripts) {
  const Folder folder;
  folder.write("program.py", "import os, sys\nprint(os.environ['RANK'], sys.argv[1:])\n", 0644);
  EXPECT_EQ(out_of({"run", folder.file("program.py"), "--x", "1"}), "0 ['--x', '1']\n");
}

TEST(RunUsage, NotInsideAnotherLauncher) {
  std::vector<std::string> torchrun = {
      "RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"};
  // A platform may set as much for a container; that is no job yet.
  Job platform({LOCKSTEP_PROGRAM, "run", "-n", "2", "true"}, torchrun);
  EXPECT_EQ(platform.wait(), 0) << platform.err();
  torchrun.emplace_back("TORCHELASTIC_RUN_ID=x");
  expect_refused({"run", "-n", "2", "true"}, 2, "torchrun has started already", torchrun);
  expect_refused({"run", "-n", "2", "true"}, 2, "RANK=x", {"RANK=x", "WORLD_SIZE=1", "TORCHELASTIC_RUN_ID=x"});
}

TEST(RunUsage, AClustersWordsAboutTheNodeAreNone) {
  Job job({LOCKSTEP_PROGRAM, "run", "-n", "2", "sh", "-c", "echo $WORLD_SIZE $MASTER_ADDR"},
          {"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "MASTER_ADDR=job-master-0", "MASTER_PORT=23456"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "2 127.0.0.1\n2 127.0.0.1\n");
}

TEST(RunUsage, WorkersGetTheStandardDescriptorsOnly) {
  Job job({"/bin/sh", "-c", "exec \"$@\" 9</etc/passwd", "sh", LOCKSTEP_PROGRAM, "run", "sh", "-c", "ls /proc/$$/fd"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "0\n1\n2\n");
}

TEST(RunUsage, OneSlurmTaskMayLaunch) {
  Job job({LOCKSTEP_PROGRAM, "run", "-n", "2", "sh", "-c", "echo $WORLD_SIZE"},
          {"SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_LOCALID=0", "SLURM_STEP_TASKS_PER_NODE=1", "SLURM_JOB_ID=1",
           "SLURM_STEP_ID=0"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "2\n2\n");
}

TEST(Dispatch, CommandsFlagsAndOtherPrograms) {
  EXPECT_THAT(out_of({"--version"}), HasSubstr("lockstep "));
  EXPECT_THAT(out_of({"--help"}), HasSubstr("usage: lockstep"));
  EXPECT_THAT(out_of({"run", "--help"}), HasSubstr("--nproc-per-node"));
  expect_refused({}, 2, "no command given");
  expect_refused({"tran"}, 2, "did you mean 'train'?");
  expect_refused({"--verbose"}, 2, "unknown option --verbose");
  const Folder folder;
  folder.write("lockstep-toy", "#!/bin/sh\necho toy \"$@\"\n", 0755);
  Job job({LOCKSTEP_PROGRAM, "toy", "-n", "a b"}, {"PATH=" + folder.path() + ":/usr/bin:/bin"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "toy -n a b\n");
}

TEST(Dispatch, MeasurementsByName) {
  expect_refused({"bench"}, 2, "bench: nothing to measure given: lockstep bench comm|step|launch|input");
  expect_refused({"bench", "stepp"}, 2, "unknown measurement 'stepp': did you mean 'step'?");
  EXPECT_THAT(out_of({"bench", "--help"}), HasSubstr("seconds of whole training steps"));
}

TEST(Dispatch, NoLibtorch) {
  Job job({"/usr/bin/ldd", LOCKSTEP_PROGRAM});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.out(), HasSubstr("libc.so"));
  EXPECT_THAT(job.out(), ::testing::Not(HasSubstr("torch")));
}

}  // namespace
}  // namespace lockstep
