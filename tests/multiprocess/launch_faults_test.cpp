// What may happen to a job, one fault after the other: how it ends, with which exit code, what the
// report says, and that nothing is left.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/support/control_group.h"
#include "tests/support/job.h"
#include "tests/support/reported_job.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Job;

class Fault : public testing::ReportedJob {
 protected:
  // Waits for the end, expects the exit code and nothing left, and returns the report.
  Json end_of(Job& job, int code) const {
    EXPECT_EQ(job.wait(), code) << job.err();
    EXPECT_TRUE(job.nothing_left());
    Json report = written_report();
    EXPECT_EQ(report["exit_code"], code);
    return report;
  }

  static Json first_failure(const Json& report) { return report["attempts"].back()["first_failure"]; }
};

TEST_F(Fault, AWorkerIsKilled) {
  Job job(shell({"-n", "3"}, "[ $RANK = 1 ] && kill -9 $$; exec sleep 1000"));
  const Json report = end_of(job, 137);
  EXPECT_EQ(report["outcome"], "failed");
  const Json failure = first_failure(report);
  EXPECT_EQ(failure["rank"], 1);
  EXPECT_EQ(failure["signal"], "SIGKILL");
  EXPECT_EQ(failure["followers"], 2);
  EXPECT_FALSE(failure["out_of_memory"]);
  EXPECT_EQ(report["attempts"][0]["ends"].size(), 3u);
}

TEST_F(Fault, AllWorkersAreKilledAtOnce) {
  Job job(shell({"-n", "4"}, "echo $$; exec sleep 1000"));
  for (const std::string& pid : job.wait_for_lines(4)) kill(std::stoi(pid), SIGKILL);
  const Json report = end_of(job, 137);
  EXPECT_EQ(first_failure(report)["signal"], "SIGKILL");
  EXPECT_EQ(first_failure(report)["followers"], 3);
}

TEST_F(Fault, AStoppedWorkerDoesNotHoldUpTheEnd) {
  Job job(shell({"-n", "2", "--grace-period=3600"}, "[ $RANK = 1 ] && { sleep 0.2; exit 5; }; kill -STOP $$"));
  EXPECT_EQ(first_failure(end_of(job, 5))["rank"], 1);
}

TEST_F(Fault, GrandchildrenByTheHundred) {
  // Every worker leaves 200 sleepers, and one that goes on making more.
  Job job(
      shell({"-n", "2"},
            "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done;"
            "(while :; do sleep 1000 & sleep 0.01; done) & echo ready; [ $RANK = 0 ] || { sleep 0.2; exit 9; }; wait"));
  EXPECT_EQ(first_failure(end_of(job, 9))["rank"], 1);
}

TEST_F(Fault, GrandchildrenByTheHundredWithoutTheirAgent) {
  Job job(shell({"-n", "2"},
                "trap '' TERM; i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; echo ready; wait"));
  job.wait_for_lines(2);
  testing::wait_until([&] { return job.living().size() >= 400; });  // who is about to become sleep shows no mark
  job.signal(SIGKILL);
  EXPECT_TRUE(job.nothing_left());
  job.wait();
  EXPECT_FALSE(std::filesystem::exists(report_file()));
}

TEST_F(Fault, WorkersThatIgnoreSigterm) {
  Job job(shell({"-n", "2", "--grace-period=0.2"}, "if [ $RANK = 1 ]; then while [ ! -e " + folder_.file("deaf") +
                                                       " ]; do sleep 0.01; done; exit 4; fi;"
                                                       "trap '' TERM; touch " +
                                                       folder_.file("deaf") + "; while :; do sleep 1000; done"));
  const Json report = end_of(job, 4);
  EXPECT_EQ(first_failure(report)["rank"], 1);
  EXPECT_EQ(report["attempts"][0]["ends"][1]["signal"], "SIGKILL");
}

TEST_F(Fault, AWorkerClosesAllItsDescriptors) {
  Job job({LOCKSTEP_PROGRAM, "run", "--report", report_file(), "-n", "2", TOY_WORKER, "close"});
  end_of(job, 0);
  EXPECT_EQ(job.err(), "");
}

TEST_F(Fault, AWorkerIsDoneEarlyAndAnotherFailsLater) {
  Job job(shell({"-n", "2"}, "[ $RANK = 0 ] && exit 0; sleep 0.2; exit 6"));
  const Json report = end_of(job, 6);
  EXPECT_EQ(first_failure(report)["rank"], 1);
  EXPECT_EQ(first_failure(report)["followers"], 0);
  EXPECT_EQ(report["attempts"][0]["ends"][0]["exit_code"], 0);
}

TEST_F(Fault, TheLargestExitCodeAndASignalOfItsOwn) {
  Job large(shell({}, "exit 255"));
  EXPECT_EQ(first_failure(end_of(large, 255))["exit_code"], 255);
  Job signal(shell({}, "kill -SEGV $$"));
  EXPECT_EQ(first_failure(end_of(signal, 139))["signal"], "SIGSEGV");
}

TEST_F(Fault, TheKernelKillsAWorkerForItsMemory) {
  const testing::OwnControlGroup group("memory", "memory.limit_in_bytes", "memory.max");
  if (!group.made()) GTEST_SKIP() << group.why_not();
  const bool v2 = group.version() == 2;
  // So much that the largest process is the worker, also beside an agent that a sanitizer has made large.
  const std::string limit = std::to_string(256 << 20);
  ASSERT_TRUE(group.write(v2 ? "memory.max" : "memory.limit_in_bytes", limit));
  group.write(v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes", v2 ? "0" : limit);
  // Agent and workers share the group, as in a container; rank 1 reads what has no end into memory.
  std::vector<std::string> command = shell({"-n", "2"}, "[ $RANK = 1 ] && exec tail /dev/zero; exec sleep 1000");
  command.insert(command.begin(),
                 {"/bin/sh", "-c", "echo $$ > " + group.file("cgroup.procs") + " && exec \"$@\"", "sh"});
  Job job(command);
  const Json failure = first_failure(end_of(job, 137));
  EXPECT_EQ(failure["rank"], 1);
  EXPECT_TRUE(failure["out_of_memory"]);
  EXPECT_THAT(job.err(), HasSubstr("cause: out of memory: the kernel killed it"));
}

TEST_F(Fault, ThereIsNoSuchProgram) {
  Job job({LOCKSTEP_PROGRAM, "run", "--report", report_file(), "-n", "2", "--max-restarts", "3", "no-such-program"});
  const Json report = end_of(job, 127);
  EXPECT_EQ(report["outcome"], "not started");
  EXPECT_EQ(report["attempts"].size(), 1u) << "it would not be there the second time";
  EXPECT_THAT(std::string(report["start_failure"]), HasSubstr("no-such-program"));
}

TEST_F(Fault, AFolderWithoutPermission) {
  if (geteuid() == 0 && access("/usr/bin/setpriv", X_OK) != 0)
    GTEST_SKIP() << "root, and no setpriv to be another user";
  const std::filesystem::path closed = folder_.file("closed");
  std::filesystem::create_directory(closed);
  std::filesystem::permissions(closed, std::filesystem::perms::none);
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
  std::filesystem::copy_file(LOCKSTEP_PROGRAM, folder_.file("lockstep"));
  std::vector<std::string> other_user;
  if (geteuid() == 0) other_user = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  const auto run = [&](std::vector<std::string> arguments) {
    std::vector<std::string> command = other_user;
    command.insert(command.end(), {folder_.file("lockstep"), "run"});
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  };
  Job program(run({(closed / "program").string()}));
  EXPECT_EQ(program.wait(), 126);
  EXPECT_THAT(program.err(), HasSubstr("Permission denied"));
  Job report(run({"--report", (closed / "report.json").string(), "true"}));
  EXPECT_EQ(report.wait(), 2);
  EXPECT_THAT(report.err(), AllOf(HasSubstr("report.json"), HasSubstr("Permission denied")));
  std::filesystem::permissions(closed, std::filesystem::perms::all);
}

TEST_F(Fault, OneOfSixtyFourWorkers) {
  Job job(shell({"-n", "64"}, "[ $RANK = 63 ] && exit 3; exec sleep 1000"));
  const Json failure = first_failure(end_of(job, 3));
  EXPECT_EQ(failure["rank"], 63);
  EXPECT_EQ(failure["followers"], 63);
}

TEST_F(Fault, NoMoreProcessesToBeHad) {
  if (access("/usr/bin/prlimit", X_OK) != 0 || access("/usr/bin/setpriv", X_OK) != 0 || geteuid() != 0)
    GTEST_SKIP() << "needs root, prlimit and setpriv";
  // A user of his own with at most 6 processes: the agent, its reaper, and four workers.
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
  std::filesystem::copy_file(LOCKSTEP_PROGRAM, folder_.file("lockstep"));
  Job job({"/usr/bin/setpriv", "--reuid=64123", "--regid=64123", "--clear-groups", "/usr/bin/prlimit", "--nproc=6",
           folder_.file("lockstep"), "run", "--report", report_file(), "-n", "32", "sleep", "1000"});
  const Json report = end_of(job, 1);
  EXPECT_EQ(report["outcome"], "not started");
  EXPECT_THAT(job.err(), HasSubstr("cannot start a process"));
}

TEST_F(Fault, TheAgentIsToldToEnd) {
  Job job(shell({"-n", "2", "--max-restarts", "3"}, "echo ready; exec sleep 1000"));
  job.wait_for_lines(2);
  job.signal(SIGTERM);
  const Json report = end_of(job, 143);
  EXPECT_EQ(report["outcome"], "stopped");
  EXPECT_EQ(report["stop_signal"], "SIGTERM");
  EXPECT_EQ(report["attempts"].size(), 1u);
}

TEST_F(Fault, AnEndAskedForInTheGracePeriodIsNoRestart) {
  Job job(shell({"-n", "2", "--max-restarts", "2", "--grace-period", "600"},
                "if [ $RANK = 1 ]; then while [ ! -e " + folder_.file("deaf") +
                    " ]; do sleep 0.01; done; exit 5; fi;"
                    "trap '' TERM; touch " +
                    folder_.file("deaf") + "; while :; do sleep 0.1; done"));
  testing::wait_until([&] { return job.err().find("rank 1 failed") != std::string::npos; });
  job.signal(SIGINT);
  const Json report = end_of(job, 5);
  EXPECT_EQ(report["outcome"], "stopped");
  EXPECT_EQ(report["attempts"].size(), 1u);
}

TEST_F(Fault, ATerminalThatClosesGivesTheGracePeriod) {
  // The kernel and the shell both send SIGHUP.
  Job job(shell({"-n", "1"}, "trap 'sleep 0.3; echo saved; exit 0' HUP; echo up; while :; do sleep 0.01; done"));
  job.wait_for_lines(1);
  job.signal(SIGHUP);
  job.signal(SIGHUP);
  end_of(job, 129);
  EXPECT_THAT(job.out(), HasSubstr("saved"));
}

TEST_F(Fault, NobodyReadsWhatTheLauncherSays) {
  std::vector<std::string> command =
      shell({"-n", "2", "--max-restarts", "1"}, "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3; exit 0");
  command.insert(command.begin(),
                 {"/bin/sh", "-c",
                  "{ unset OMP_NUM_THREADS; sleep 0.1; \"$@\"; echo $? > " + folder_.file("code") +
                      "; } 2>&1 | true; while [ ! -e " + folder_.file("code") + " ]; do sleep 0.01; done",
                  "sh"});
  Job job(command);
  job.wait();
  testing::wait_until([&] { return !testing::read_file(folder_.file("code")).empty(); });
  EXPECT_EQ(testing::read_file(folder_.file("code")), "0\n");
}

TEST_F(Fault, OrphansAreBuried) {
  Job job(shell({}, "i=0; while [ $i -lt 50 ]; do (/bin/true &); i=$((i+1)); done; echo $PPID; exec sleep 1000"));
  const std::string agent = job.wait_for_lines(1)[0];
  testing::wait_until([&] {
    std::ifstream children("/proc/" + agent + "/task/" + agent + "/children");
    int count = 0;
    for (pid_t pid = 0; children >> pid;) ++count;
    return count == 2;  // the worker and the reaper
  });
  job.signal(SIGTERM);
  end_of(job, 143);
}

TEST_F(Fault, TheReportFollowsALinkAndLeavesDevicesAlone) {
  std::ofstream(folder_.file("target")) << "old";
  std::filesystem::create_symlink("target", folder_.file("link"));
  Job job({LOCKSTEP_PROGRAM, "run", "--report", folder_.file("link"), "true"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder_.file("link")));
  EXPECT_EQ(Json::parse(testing::read_file(folder_.file("target")))["outcome"], "succeeded");
  Job device({LOCKSTEP_PROGRAM, "run", "--report", "/dev/stdout", "true"});
  EXPECT_EQ(device.wait(), 0) << device.err();
  EXPECT_EQ(Json::parse(device.out())["outcome"], "succeeded");
}

TEST_F(Fault, OtherSignalsMayBeHandledToo) {
  Job job(shell({"-n", "2", "--signals-to-handle", "SIGUSR1"},
                "trap 'echo got; exit 0' USR1; echo ready; sleep 1000 & wait"));
  job.wait_for_lines(2);
  job.signal(SIGUSR1);
  EXPECT_EQ(end_of(job, 128 + SIGUSR1)["stop_signal"], "SIGUSR1");
  EXPECT_EQ(testing::lines(job.out()).size(), 4u) << job.out();
}

TEST_F(Fault, AWorkersExceptionIsQuoted) {
  Job job(shell({"-n", "2"},
                "[ $RANK = 0 ] && exec sleep 1000;"
                R"(echo '{"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "Traceback"}}}')"
                " > $TORCHELASTIC_ERROR_FILE; exit 1"));
  const Json failure = first_failure(end_of(job, 1));
  EXPECT_EQ(failure["message"], "ValueError: bad");
  EXPECT_EQ(failure["traceback"], "Traceback");
  EXPECT_THAT(job.err(), HasSubstr("cause: ValueError: bad"));
}

TEST_F(Fault, TheFirstExceptionIsToBlameEvenIfAFollowerEndsFirst) {
  Job job(
      shell({"-n", "2"}, "if [ $RANK = 0 ]; then while [ ! -e " + folder_.file("gone") +
                             " ]; do sleep 0.01; done; exit 1; fi;"
                             R"(echo '{"message": {"message": "the first"}}' > $TORCHELASTIC_ERROR_FILE; sleep 0.05;)"
                             "touch " +
                             folder_.file("gone") + "; sleep 0.5; exit 7"));
  const Json failure = first_failure(end_of(job, 7));
  EXPECT_EQ(failure["rank"], 1);
  EXPECT_EQ(failure["message"], "the first");
}

TEST_F(Fault, AKilledWorkerIsStartedAgainWithAllOthers) {
  Job job(shell({"-n", "2", "--max-restarts", "3"},
                "echo $RANK $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $MASTER_PORT;"
                "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; touch " +
                    folder_.file("up") +
                    "$RANK$TORCHELASTIC_RESTART_COUNT; [ $RANK = 0 ] && exec sleep 1000;"
                    "while [ ! -e " +
                    folder_.file("up") + "0$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done; kill -9 $$"));
  const Json report = end_of(job, 0);
  EXPECT_EQ(report["outcome"], "succeeded");
  ASSERT_EQ(report["attempts"].size(), 3u);
  EXPECT_EQ(report["attempts"][0]["first_failure"]["signal"], "SIGKILL");
  EXPECT_NE(report["attempts"][0]["master_port"], report["attempts"][1]["master_port"]);
  EXPECT_THAT(job.out(), AllOf(HasSubstr("0 0 3 "), HasSubstr("1 1 3 "), HasSubstr("0 2 3 ")));
  EXPECT_THAT(job.err(), AllOf(HasSubstr("restart 1 of 3\n"), HasSubstr("restart 2 of 3, in 100 ms")));
}

TEST_F(Fault, RestartsRunOut) {
  Job job(shell({"-n", "2", "--max-restarts", "2"}, "exit $((3 + TORCHELASTIC_RESTART_COUNT))"));
  const Json report = end_of(job, 5);
  EXPECT_EQ(report["attempts"].size(), 3u);
}

TEST_F(Fault, PermanentCodesEndTheJob) {
  Job job(shell({"--max-restarts", "5", "--no-restart-codes", "64-78"}, "exit 70"));
  EXPECT_EQ(end_of(job, 70)["attempts"].size(), 1u);
  EXPECT_THAT(job.err(), HasSubstr("not restarted: exit code 70 is among --no-restart-codes"));
}

TEST_F(Fault, BadInputIsNotTriedAgain) {
  Job job(
      {LOCKSTEP_PROGRAM, "run", "--report", report_file(), "-n", "2", "--max-restarts", "3", TOY_WORKER, "fail", "2"});
  EXPECT_EQ(end_of(job, 2)["attempts"].size(), 1u);
}

TEST_F(Fault, ASignalDuringTheBackOffEndsTheJob) {
  Job job(shell({"--max-restarts", "100"}, "exit 1"));
  testing::wait_until([&] { return job.err().find("in 3200 ms") != std::string::npos; });
  job.signal(SIGINT);
  EXPECT_EQ(end_of(job, 130)["outcome"], "stopped");
}

TEST_F(Fault, OurOwnWorkersMeetAgainAfterARestart) {
  Job job(
      {LOCKSTEP_PROGRAM, "run", "--report", report_file(), "-n", "4", "--max-restarts", "1", TOY_WORKER, "die-once"});
  const Json report = end_of(job, 0);
  ASSERT_EQ(report["attempts"].size(), 2u);
  EXPECT_EQ(report["attempts"][0]["first_failure"]["step"], 17);
  EXPECT_EQ(report["attempts"][0]["first_failure"]["phase"], "update");
  EXPECT_EQ(testing::lines(job.out()).size(), 4u);
}

std::size_t descriptors_of(pid_t pid) {
  const std::filesystem::directory_iterator files("/proc/" + std::to_string(pid) + "/fd");
  return std::size_t(std::distance(begin(files), end(files)));
}

// Once it has come to rest: a worker may be up before the agent has closed what its start took.
std::size_t settled_descriptors_of(pid_t pid) {
  std::size_t last = 0;
  testing::wait_until([&] {
    const std::size_t before = std::exchange(last, descriptors_of(pid));
    usleep(30'000);
    return before == last;
  });
  return last;
}

TEST_F(Fault, RestartsLeakNoDescriptor) {
  // Attempts 0 and 4 stay until a file appears.
  const std::string go = folder_.file("go");
  Job job(shell({"-n", "3", "--max-restarts", "20", "--no-restart-codes", "2"},
                "case $TORCHELASTIC_RESTART_COUNT in 0|4) echo up; while [ ! -e " + go +
                    "$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done;; esac;"
                    "[ $TORCHELASTIC_RESTART_COUNT = 4 ] && exit 2; exit 1"));
  job.wait_for_lines(3);
  const std::size_t at_first = settled_descriptors_of(job.pid());
  std::ofstream(go + "0") << "go";
  job.wait_for_lines(6);
  EXPECT_EQ(settled_descriptors_of(job.pid()), at_first);
  std::ofstream(go + "4") << "go";
  end_of(job, 2);
}

TEST_F(Fault, AThousandLaunchesInARow) {
  const std::size_t before = descriptors_of(getpid());
  for (int i = 0; i < 1'000; ++i) {
    Job job({LOCKSTEP_PROGRAM, "run", "-n", "2", "/bin/true"});
    ASSERT_EQ(job.wait(), 0) << "launch " << i << ": " << job.err();
    ASSERT_EQ(job.err(), "") << "launch " << i;
  }
  EXPECT_EQ(descriptors_of(getpid()), before);
}

}  // namespace
}  // namespace lockstep
