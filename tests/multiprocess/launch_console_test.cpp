// What happens to a job whose console stands still, or whose log router dies, with the real launcher.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/terminal.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Job;
using ::testing::Not;
using testing::read_file;
using testing::Terminal;
using testing::wait_until;

class Console : public ::testing::Test {
 protected:
  // `lockstep run <options> sh -c <script>`, with stderr on the terminal.
  static std::vector<std::string> shell_on(const Terminal& terminal, const std::vector<std::string>& options,
                                           const std::string& script) {
    std::vector<std::string> command{"/bin/sh",        "-c", "exec \"$@\" 2> " + terminal.name(), "sh",
                                     LOCKSTEP_PROGRAM, "run"};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"sh", "-c", script});
    return command;
  }

  // Rank 1 fails, and has much to say of it, while rank 0 does not listen to SIGTERM.
  std::string a_deaf_rank_and_a_failing_one() const {
    return "if [ $RANK = 1 ]; then while [ ! -s " + folder_.file("deaf") + " ]; do sleep 0.01; done;" +
           "echo '{\"message\": {\"message\": \"" + std::string(450, 'e') +
           "\"}}' > $TORCHELASTIC_ERROR_FILE; exit 5; fi;" + "trap '' TERM; echo $$ > " + folder_.file("deaf") +
           "; while :; do sleep 0.01; done";
  }

  bool the_deaf_one_is_gone() const {
    const std::string pid = read_file(folder_.file("deaf"));
    return pid.ends_with("\n") && testing::process_state(std::stoi(pid)) == 0;
  }

  testing::ScratchFolder folder_;
};

TEST_F(Console, AFullTerminalDoesNotHoldUpTheGracePeriod) {
  const Terminal terminal;
  terminal.fill_but_for_little();  // poll() says that there is room, but the report does not fit
  Job job(shell_on(terminal, {"-n", "2", "--grace-period", "0.2"}, a_deaf_rank_and_a_failing_one()));
  wait_until([&] { return the_deaf_one_is_gone(); });
  const std::string seen = terminal.read_until([&] { return job.living().empty(); });
  EXPECT_EQ(job.wait(), 5);
  EXPECT_THAT(seen, AllOf(HasSubstr("rank 1 failed"), HasSubstr("1 more rank ended after it")));
}

TEST_F(Console, AReportWaitsForATerminalThatWasStopped) {
  const Terminal terminal;
  terminal.stop();
  Job job(shell_on(terminal, {"-n", "2", "--grace-period", "0.2"}, a_deaf_rank_and_a_failing_one()));
  wait_until([&] { return the_deaf_one_is_gone(); });
  terminal.go_on();
  const std::string seen = terminal.read_until([&] { return job.living().empty(); });
  EXPECT_EQ(job.wait(), 5);
  EXPECT_THAT(seen, AllOf(HasSubstr("rank 1 failed"), HasSubstr("1 more rank ended after it")));
}

TEST_F(Console, ASignalEndsTheWaitForATerminal) {
  const Terminal terminal;
  terminal.stop();
  Job job(shell_on(terminal, {"-n", "2", "--grace-period", "0.2"}, a_deaf_rank_and_a_failing_one()));
  wait_until([&] { return the_deaf_one_is_gone(); });
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 5);
}

TEST_F(Console, ATerminalThatStopsBackgroundWritersDoesNotStopTheAgent) {
  const Terminal terminal;
  const auto [result, seen] = terminal.in_session([&] {
    terminal.stop_background_writers();
    const pid_t agent = fork();
    if (agent == 0) {
      setpgid(0, 0);
      dup2(terminal.screen(), STDERR_FILENO);
      execl(LOCKSTEP_PROGRAM, LOCKSTEP_PROGRAM, "run", "sh", "-c", "exit 3", nullptr);
      _exit(101);
    }
    int status = -1;
    waitpid(agent, &status, WUNTRACED);
    if (WIFSTOPPED(status)) kill(agent, SIGKILL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 102;
  });
  EXPECT_EQ(result, 3);
  EXPECT_THAT(seen, HasSubstr("rank 0 failed"));
}

// ---- the log router

// Waits for it: a child names itself after its fork, and a rank may print before.
pid_t child_named(pid_t parent, const std::string& name) {
  pid_t found = 0;
  wait_until([&] {
    std::ifstream children("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
    for (pid_t pid = 0; found == 0 && children >> pid;) {
      std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
      if (std::string its; std::getline(comm, its) && its == name) found = pid;
    }
    return found != 0;
  });
  return found;
}

class Router : public ::testing::Test {
 protected:
  std::vector<std::string> shell(const std::vector<std::string>& options, const std::string& script) const {
    std::vector<std::string> command{LOCKSTEP_PROGRAM, "run",   "--log-dir", folder_.file("logs"), "-t", "1",
                                     "--report",       report()};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"sh", "-c", script});
    return command;
  }
  std::string report() const { return folder_.file("report.json"); }
  std::string log(const std::string& name) const {
    return read_file((std::filesystem::directory_iterator(folder_.file("logs"))->path() / name).string());
  }

  testing::ScratchFolder folder_;
};

TEST_F(Router, ItsDeathEndsTheJobAndIsTheCauseThatIsTold) {
  Job job(shell({"-n", "2"}, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done"));
  job.wait_for_lines(2);
  const pid_t router = child_named(job.pid(), "lockstep-logs");
  kill(router, SIGKILL);
  EXPECT_EQ(job.wait(), 1);
  const std::string cause = "the log router (process " + std::to_string(router) + ") has ended: killed by SIGKILL";
  EXPECT_THAT(job.err(), HasSubstr(cause));
  EXPECT_THAT(job.err(), Not(HasSubstr("SIGPIPE")));
  const Json attempt = Json::parse(read_file(report()))["attempts"][0];
  EXPECT_EQ(attempt["launcher_failure"], cause);
  EXPECT_TRUE(attempt["first_failure"].is_null());
  for (const char* rank : {"0", "1"}) EXPECT_EQ(log("attempt_0/" + std::string(rank) + "/stdout.log"), "up\nbye\n");
  EXPECT_TRUE(job.nothing_left());
}

TEST(ReaperOfAJob, ItsDeathIsToldAndStopsNobody) {
  const testing::ScratchFolder folder;
  Job job({LOCKSTEP_PROGRAM, "run", "sh", "-c", "echo up; while [ ! -e \"$1\" ]; do sleep 0.01; done", "sh",
           folder.file("enough")});
  job.wait_for_lines(1);
  const pid_t reaper = child_named(job.pid(), "lockstep-reaper");
  kill(reaper, SIGKILL);
  std::ofstream(folder.file("enough")) << "";
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.err(), HasSubstr("the reaper (process " + std::to_string(reaper) + ") has ended"));
}

TEST_F(Router, AJobThatMayStartAgainGetsAnotherOne) {
  Job job(shell({"-n", "2", "--max-restarts", "1"},
                "echo up; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; exec sleep 1000"));
  job.wait_for_lines(2);
  kill(child_named(job.pid(), "lockstep-logs"), SIGKILL);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(log("attempt_1/1/stdout.log"), "up\n");
  EXPECT_EQ(Json::parse(read_file(report()))["attempts"].size(), 2u);
}

}  // namespace
}  // namespace lockstep
