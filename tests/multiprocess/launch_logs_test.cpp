// Where the output of a job's workers goes, with the real launcher. The router alone is tested in
// tests/unit/launch/output/log_router_test.cpp.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/unique_fd.h"
#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Job;
using ::testing::Not;
using testing::read_file;
using namespace std::string_literals;
using ::testing::UnorderedElementsAre;

class Logs : public ::testing::Test {
 protected:
  std::vector<std::string> shell(std::vector<std::string> options, const std::string& script) const {
    options.insert(options.begin(), {LOCKSTEP_PROGRAM, "run", "--log-dir", folder_.file("logs"), "--rdzv-id", "job"});
    options.insert(options.end(), {"sh", "-c", script});
    return options;
  }

  // "<attempt>/<rank>/<file>" of the only run in the log folder.
  std::string log(const std::string& name) const {
    for (const auto& run : std::filesystem::directory_iterator(folder_.file("logs"))) {
      EXPECT_THAT(run.path().filename().string(), ::testing::StartsWith("job_"));
      return (run.path() / name).string();
    }
    return {};
  }

  testing::ScratchFolder folder_;
};

TEST_F(Logs, RedirectedByRank) {
  Job job(shell({"-n", "2", "-r", "0:3,1:1"}, "echo out $RANK; echo err $RANK >&2"));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "");
  EXPECT_EQ(job.err(), "err 1\n");
  EXPECT_EQ(read_file(log("attempt_0/0/stdout.log")), "out 0\n");
  EXPECT_EQ(read_file(log("attempt_0/0/stderr.log")), "err 0\n");
  EXPECT_EQ(read_file(log("attempt_0/1/stdout.log")), "out 1\n");
  EXPECT_FALSE(std::filesystem::exists(log("attempt_0/1/stderr.log")));
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(Logs, TeedWithAPrefixAndFiltered) {
  Job job(
      shell({"-n", "3", "-t", "1", "--role", "tr", "--local-ranks-filter", "0,2", "--duplicate-stdout-filters", "two"},
            "echo one $RANK; echo two $RANK"));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(testing::lines(job.out()),
              UnorderedElementsAre("[tr0]:one 0", "[tr0]:two 0", "[tr2]:one 2", "[tr2]:two 2"));
  EXPECT_EQ(read_file(log("attempt_0/1/stdout.log")), "one 1\ntwo 1\n");
  EXPECT_THAT(read_file(log("attempt_0/filtered_stdout.log")), AllOf(HasSubstr("two 0"), Not(HasSubstr("one"))));
}

TEST_F(Logs, OnlyTheseRanksOnTheConsole) {
  Job job({LOCKSTEP_PROGRAM, "run", "-n", "3", "--local-ranks-filter", "1", "sh", "-c", "echo $RANK; echo $RANK >&2"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out() + job.err(), "1\n1\n");
}

TEST_F(Logs, EachAttemptHasItsFolder) {
  Job job(
      shell({"-n", "2", "-r", "3", "--max-restarts", "1"},
            "echo attempt $TORCHELASTIC_RESTART_COUNT; [ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 1; exit 0"));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(read_file(log("attempt_0/1/stdout.log")), "attempt 0\n");
  EXPECT_EQ(read_file(log("attempt_1/1/stdout.log")), "attempt 1\n");
}

TEST_F(Logs, TheReportQuotesTheLastTwentyLines) {
  const std::string report = folder_.file("report.json");
  Job job(shell(
      {"-n", "2", "-r", "3", "--report", report},
      "[ $RANK = 0 ] && exec sleep 1000; i=0; while [ $i -lt 50 ]; do echo line $i >&2; i=$((i+1)); done; exit 3"));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("last lines of " + log("attempt_0/1/stderr.log")), HasSubstr("    line 30\n"),
                               HasSubstr("    line 49\n"), Not(HasSubstr("line 29\n"))));
  const Json tail = Json::parse(read_file(report))["attempts"][0]["first_failure"]["log"][0];
  EXPECT_EQ(tail["file"], log("attempt_0/1/stderr.log"));
  EXPECT_EQ(tail["last_lines"].size(), 20u);
  EXPECT_EQ(tail["last_lines"][19], "line 49");
}

TEST_F(Logs, WhatWasOnTheConsoleIsNotRepeatedThere) {
  Job job(shell({"-t", "3", "--report", folder_.file("report.json")}, "echo the reason >&2; exit 3"));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("[default0]:the reason\n"), Not(HasSubstr("last lines"))));
  const Json report = Json::parse(read_file(folder_.file("report.json")));
  EXPECT_EQ(report["attempts"][0]["first_failure"]["log"][0]["last_lines"][0], "the reason");
}

TEST_F(Logs, ManyWritersAndWholeLines) {
  Job job(shell({"-n", "16", "-t", "3"},
                "i=0; while [ $i -lt 200 ]; do printf 'a%s.' $RANK; printf 'b%s\\n' $RANK; i=$((i+1)); done"));
  EXPECT_EQ(job.wait(), 0);
  const auto lines = testing::lines(job.out());
  EXPECT_EQ(lines.size(), 16u * 200u);
  for (const std::string& line : lines) {
    const std::string rank = line.substr(8, line.find(']') - 8);
    ASSERT_EQ(line, "[default" + rank + "]:a" + rank + ".b" + rank);
  }
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(Logs, AFullDiskDoesNotEndTheJob) {
  std::filesystem::create_directory(folder_.file("logs"));
  if (mount("none", folder_.file("logs").c_str(), "tmpfs", 0, "size=256k") != 0)
    GTEST_SKIP() << "no small file system can be mounted here";
  {
    Job job(shell({"-n", "2", "-r", "1"}, "head -c 3000000 /dev/zero && echo done >&2"));
    EXPECT_EQ(job.wait(), 0) << job.err();
    EXPECT_EQ(testing::lines(job.err()).size(), 4u) << job.err();  // two of each
    EXPECT_THAT(job.err(), AllOf(HasSubstr("stdout.log"), HasSubstr("No space left on device"), HasSubstr("done\n")));
    EXPECT_TRUE(job.nothing_left());
  }
  umount2(folder_.file("logs").c_str(), MNT_DETACH);
}

TEST_F(Logs, ATerminalThatStandsStillStopsNeitherWorkersNorTheEnd) {
  // The agent's stdout and stderr are a pipe that nobody reads.
  const std::string pipe = folder_.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const base::UniqueFd reader(open(pipe.c_str(), O_RDWR | O_CLOEXEC));
  std::vector<std::string> command =
      shell({"-n", "2", "-t", "3"}, "head -c 4000000 /dev/zero | tr '\\0' x; touch " + folder_.file("done") +
                                        "$RANK;"
                                        "[ $RANK = 0 ] && exec sleep 1000; while [ ! -e " +
                                        folder_.file("done0") + " ]; do sleep 0.01; done; exit 6");
  command.insert(command.begin(), {"/bin/sh", "-c", "exec \"$@\" > " + pipe + " 2>&1", "sh"});
  Job job(command);
  EXPECT_EQ(job.wait(), 6);
  EXPECT_EQ(std::filesystem::file_size(log("attempt_0/0/stdout.log")), 4'000'000u);
  EXPECT_EQ(std::filesystem::file_size(log("attempt_0/1/stdout.log")), 4'000'000u);
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(Logs, AnOrphanThatEndsMeanwhileCutsNothingOff) {
  // The console is a pipe that nobody reads until an orphan in a session of its own has ended.
  const std::string pipe = folder_.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const base::UniqueFd reader(open(pipe.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  std::vector<std::string> command = shell(
      {"-t", "1"}, "setsid sh -c 'echo $$ > " + folder_.file("orphan") + "; exec sleep 0.5' & while [ ! -s " +
                       folder_.file("orphan") + " ]; do sleep 0.01; done; head -c 1000000 /dev/zero | tr '\\0' x");
  command.insert(command.begin(), {"/bin/sh", "-c", "exec \"$@\" > " + pipe, "sh"});
  Job job(command);
  testing::wait_until([&] { return !read_file(folder_.file("orphan")).empty(); });
  const pid_t orphan = std::stoi(read_file(folder_.file("orphan")));
  testing::wait_until([&] { return "SRD"s.find(testing::process_state(orphan)) == std::string::npos; });
  std::size_t shown = 0;
  std::array<char, 1 << 16> buffer;
  testing::wait_until([&] {
    for (ssize_t got = 0; (got = read(reader.get(), buffer.data(), buffer.size())) > 0;) shown += std::size_t(got);
    return shown >= std::string("[default0]:\n").size() + 1'000'000;
  });
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.err(), "");
}

TEST_F(Logs, AWrongFolderIsToldBeforeAnythingStarts) {
  std::ofstream(folder_.file("logs")) << "a file";
  Job job(shell({"-r", "3"}, "echo started"));
  EXPECT_EQ(job.wait(), 2);
  EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
  EXPECT_THAT(job.err(), HasSubstr(folder_.file("logs")));
}

TEST_F(Logs, AKilledAgentLosesNoLine) {
  Job job(shell({"-n", "2", "-r", "1"},
                "i=0; while [ $i -lt 500 ]; do echo line; i=$((i+1)); done; echo up >&2; exec sleep 1000"));
  testing::wait_until([&] { return testing::lines(job.err()).size() == 2; });
  job.signal(SIGKILL);
  EXPECT_TRUE(job.nothing_left());
  job.wait();
  EXPECT_EQ(testing::lines(read_file(log("attempt_0/0/stdout.log"))).size(), 500u);
  EXPECT_EQ(testing::lines(read_file(log("attempt_0/1/stdout.log"))).size(), 500u);
}

}  // namespace
}  // namespace lockstep
