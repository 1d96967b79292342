// `lockstep run --hosts`: agents that are started from one place. The remote shell is a script that runs the command
// here, as a child of its own; a host is an address of the loopback.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/job.h"
#include "tests/support/own_sshd.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Job;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

class HostsTest : public ::testing::Test {
 protected:
  HostsTest() {
    std::filesystem::permissions(
        folder_.write("shell", std::string() +
                                   "#!/bin/sh\n"
                                   "[ $1 = unknown ] && { echo 'no such host' >&2; exit 255; }\n"
                                   "export HERE=$1; echo $$ > " +
                                   folder_.file("shell.$1") + "; shift; cd /; sh -c \"$*\"; exit $?\n"),
        std::filesystem::perms::owner_all);
  }

  std::vector<std::string> command(const std::string& hosts, std::vector<std::string> flags,
                                   std::vector<std::string> program) const {
    std::vector<std::string> all{LOCKSTEP_PROGRAM, "run", "--hosts", hosts, "--remote-shell", folder_.file("shell")};
    all.insert(all.end(), flags.begin(), flags.end());
    all.insert(all.end(), program.begin(), program.end());
    return all;
  }

  // The same where a script finds the hosts; the program runs in the test's folder.
  std::vector<std::string> discovering(const std::string& script, std::vector<std::string> flags,
                                       std::vector<std::string> program) const {
    std::vector<std::string> all = command("", std::move(flags), std::move(program));
    all[2] = "--host-discovery-script";
    all[3] = script;
    return in_folder(all);
  }

  // What the script prints: the job reads it again and again, and never half of it.
  void find(const std::string& hosts) const {
    std::filesystem::rename(folder_.write("found.new", hosts), folder_.file("found"));
  }

  std::vector<std::string> in_folder(const std::vector<std::string>& words) const {
    std::vector<std::string> all{"/bin/sh", "-c", "cd " + folder_.path() + "; exec \"$@\"", "x"};
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }

  // A lockstep of this test's own, beside which a script stands for the program that saves.
  std::string lockstep_that_saves_by(const std::string& script) const {
    std::filesystem::copy_file(LOCKSTEP_PROGRAM, folder_.file("lockstep"));
    std::filesystem::permissions(folder_.write("lockstep-checkpoint", "#!/bin/sh\n" + script),
                                 std::filesystem::perms::owner_all);
    return folder_.file("lockstep");
  }

  const testing::ScratchFolder folder_;
  // Addresses of this test's own.
  const std::string a_ = "127.210." + std::to_string(getpid() / 250 % 250) + "." + std::to_string(1 + getpid() % 250);
  const std::string b_ = "127.211.0.1";
};

TEST_F(HostsTest, TheJobIsTheSameOnAll) {
  folder_.write("hosts", a_ + " slots=2 # the first\n" + b_ + ":1\n");
  const std::string script =
      "echo \"$HERE $RANK/$WORLD_SIZE $VALUE $OTHER $1 $#\"; pwd >&2; cat; env | grep -i secret; true";
  Job job(command(folder_.file("hosts"), {"-x", "VALUE", "-x", "OTHER=it's \"$HOME\" ; x", "--"},
                  {"sh", "-c", script, "x", "a  b", ""}),
          {"VALUE=1  2", "PET_ROLE=trainer"});
  EXPECT_EQ(job.wait(), 0);
  const std::string rest = " 1  2 it's \"$HOME\" ; x a  b 2";
  EXPECT_THAT(testing::lines(job.out()),
              UnorderedElementsAre(a_ + ": " + a_ + " 0/3" + rest, a_ + ": " + a_ + " 1/3" + rest,
                                   b_ + ": " + b_ + " 2/3" + rest));
  const std::string here = std::filesystem::current_path();
  EXPECT_THAT(job.err(), AllOf(HasSubstr(a_ + ": " + here + "\n"), HasSubstr(b_ + ": " + here + "\n")));
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(HostsTest, OneHostHasNobodyToMeet) {
  Job job(command("localhost:2", {}, {"sh", "-c", "echo $RANK; exit 75"}));
  EXPECT_EQ(job.wait(), 75) << job.err();
  EXPECT_THAT(testing::lines(job.out()), UnorderedElementsAre("localhost: 0", "localhost: 1"));
}

TEST_F(HostsTest, TheFirstFailureDecides) {
  Job job(command(a_ + "," + b_, {"-n", "2", "--max-restarts", "1", "--report", folder_.file("report")},
                  {"sh", "-c", "[ $RANK = 3 ] && exit 7; sleep 1000"}));
  EXPECT_EQ(job.wait(), 7);
  const std::vector<std::string> said = testing::lines(job.err());
  EXPECT_EQ(std::ranges::count_if(said, [](const auto& line) { return line.find("rank 3 failed") != line.npos; }), 2)
      << job.err();  // once for each of two attempts
  EXPECT_THAT(said, ::testing::Contains(StartsWith(a_ + ": lockstep: rank 3 failed: exit code 7")));
  EXPECT_EQ(std::ranges::count_if(said, [](const auto& line) { return line.find("restart 1 of") != line.npos; }), 1);
  const nlohmann::json report = nlohmann::json::parse(std::ifstream(folder_.file("report")));
  EXPECT_EQ(report["attempts"].size(), 2u);
  for (const nlohmann::json& attempt : report["attempts"]) {
    EXPECT_EQ(attempt["first_failure"]["rank"], 3);
    EXPECT_EQ(attempt["ends"].size(), 4u);
  }
  EXPECT_TRUE(job.nothing_left());
}

// The shell of the second host is killed, as when its connection is lost: its agent ends, and another is started.
TEST_F(HostsTest, ALostHostIsStartedAgain) {
  Job job(in_folder(command(a_ + "," + b_, {"--max-restarts", "1"},
                            {"sh", "-c",
                             "echo $RANK try $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit;"
                             "[ $RANK = 1 ] && kill -9 $(cat shell." +
                                 b_ + "); sleep 1000"})));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(testing::lines(job.out()),
              ::testing::AllOf(::testing::Contains(a_ + ": 0 try 1"), ::testing::Contains(b_ + ": 1 try 1")));
  EXPECT_THAT(job.err(), AllOf(HasSubstr("node 1 (host "), HasSubstr("restart 1 of 1")));
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(HostsTest, WithoutRestartsALostHostEndsTheJob) {
  Job job(in_folder(
      command(a_ + "," + b_, {}, {"sh", "-c", "[ $RANK = 1 ] && kill -9 $(cat shell." + b_ + "); sleep 1000"})));
  EXPECT_NE(job.wait(), 0) << job.err();
  EXPECT_TRUE(job.nothing_left());
}

// A host comes and is let in; it goes, and the job goes on without it; it comes again.
TEST_F(HostsTest, HostsThatAScriptFindsComeAndGo) {
  find(a_ + "\n");
  Job job(discovering("cat " + folder_.file("found"), {"--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=0.01"},
                      {"sh", "-c", "echo $RANK of $WORLD_SIZE; until [ -e go ]; do sleep 0.02; done"}));
  const auto said = [&](int lines) {
    job.wait_for_lines(lines);
    return testing::lines(job.out());
  };
  EXPECT_EQ(said(1)[0], a_ + ": 0 of 1");
  find(a_ + "\n" + b_ + "\n");
  EXPECT_THAT(said(3), UnorderedElementsAre(a_ + ": 0 of 1", a_ + ": 0 of 2", b_ + ": 1 of 2"));
  find(a_ + ":7\n");  // the first stays as it is
  EXPECT_EQ(said(4)[3], a_ + ": 0 of 1");
  folder_.write("go", "");
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.err(), AllOf(HasSubstr("lockstep: " + b_ + ": is a host now: its agent is started"),
                               HasSubstr("lockstep: " + b_ + ": is no host any more: its agent is ended"),
                               HasSubstr("lockstep: " + a_ + ": has another number of slots now")));
  EXPECT_THAT(job.err(), Not(HasSubstr("restart 1 of")));
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(HostsTest, ADiscoveryThatFindsNobody) {
  const auto refused = [&](const std::string& script, const std::string& conf) {
    Job job(discovering(script, {"--nnodes", "1:2", "--rdzv-conf", conf}, {"echo"}));
    EXPECT_EQ(job.wait(), 2) << job.err();
    EXPECT_TRUE(job.nothing_left());
    return job.err();
  };
  EXPECT_THAT(refused("echo why >&2; exit 3", "timeout=9"),
              AllOf(HasSubstr("host discovery: why"),
                    HasSubstr("run: --host-discovery-script 'echo why >&2; exit 3': it ends with exit code 3")));
  EXPECT_THAT(refused("/no/such/script", "timeout=9"), HasSubstr("it ends with exit code 127"));
  EXPECT_THAT(refused("echo a\necho b c", "timeout=9"), HasSubstr(": echo a\\necho b c, line 2: 'c' is not slots=N"));
  EXPECT_THAT(refused("true", "timeout=0.1"), HasSubstr("the time is up: 0 of at least 1 hosts"));
  EXPECT_THAT(refused("sleep 1000", "timeout=0.1"), HasSubstr("the time is up: 0 of at least 1 hosts"));
}

// The script fails while the job runs, and then no longer has the first host.
TEST_F(HostsTest, WithoutTheFirstHostThereIsNoJob) {
  find(a_ + "\n");
  Job job(discovering("cat " + folder_.file("found"), {"--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=0.01"},
                      {"sh", "-c", "echo; sleep 1000"}));
  job.wait_for_lines(1);
  std::filesystem::remove(folder_.file("found"));
  testing::wait_until(
      [&] { return job.err().find("it ends with exit code 1: the hosts stay as they are") != std::string::npos; });
  find(b_ + "\n");
  EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.err();
  EXPECT_THAT(job.err(),
              HasSubstr("lockstep: " + a_ + ": is no host any more, and it is the one where the agents meet"));
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(HostsTest, AHostThatCannotBeReachedEndsTheJob) {
  Job job(command(a_ + ",unknown", {}, {"echo"}));
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(),
              AllOf(HasSubstr("unknown: no such host\n"), HasSubstr("lockstep: unknown: the remote shell has failed")));
  EXPECT_EQ(job.out(), "");
  EXPECT_TRUE(job.nothing_left());
  Job none(command(a_, {"--remote-shell", "/no/such/shell"}, {"echo"}));
  EXPECT_EQ(none.wait(), 127);
  EXPECT_THAT(none.err(), HasSubstr(a_ + ": /no/such/shell: No such file or directory"));
}

TEST_F(HostsTest, CtrlCEndsAll) {
  Job job(command(a_ + "," + b_, {}, {"sh", "-c", "trap 'echo bye; exit 3' INT; echo; while :; do sleep 0.01; done"}));
  job.wait_for_lines(2);
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 128 + SIGINT) << job.err();
  EXPECT_THAT(testing::lines(job.out()), ::testing::Contains(HasSubstr("bye")));
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(HostsTest, ASecondCtrlCWaitsForNobody) {
  Job job(command(a_ + "," + b_, {}, {"sh", "-c", "trap '' INT TERM; echo; while :; do sleep 0.01; done"}));
  job.wait_for_lines(2);
  job.signal(SIGINT);
  job.signal(SIGINT);  // may be one signal with the first
  for (int i = 0; i < 100 && !job.nothing_left(std::chrono::milliseconds(100)); ++i) job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 128 + SIGINT) << job.err();
}

// The disk is slower than all that ends without restarts: the other agent, the leashes (2 s), the remote shells (10 s).
TEST_F(HostsTest, ASlowDiskIsWaitedForAtTheFirstHost) {
  std::vector<std::string> words = command(a_ + "," + b_, {"--grace-period", "0"}, {TOY_WORKER, "leave", "a plan"});
  words.front() = lockstep_that_saves_by("echo \"$1\"; sleep 13; echo saved\n");
  Job job(words);
  job.wait_for_lines(2);
  kill(testing::pid_of_rank(job, 1), SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_THAT(job.out(), AllOf(HasSubstr(a_ + ": save-segment\n"), HasSubstr(a_ + ": saved\n")));
  EXPECT_THAT(job.err(), AllOf(HasSubstr("lockstep: " + a_ +
                                         ": its agent may be saving the last committed step, and "
                                         "is waited for: 600 s at most, or until another signal\n"),
                               Not(HasSubstr("is not saved")), Not(HasSubstr("is killed"))));
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(HostsTest, ASecondCtrlCWaitsForNoDisk) {
  std::vector<std::string> words = command(a_ + "," + b_, {"--grace-period", "0"}, {TOY_WORKER, "leave", "a plan"});
  words.front() = lockstep_that_saves_by("echo \"$1\"; sleep 1000\n");
  Job job(words);
  job.wait_for_lines(2);
  job.signal(SIGINT);
  job.wait_for_lines(3);
  sleep(6);  // behind the end of the leashes
  EXPECT_THAT(job.err(), Not(HasSubstr("is not saved")));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 128 + SIGINT);
  EXPECT_THAT(job.err(), HasSubstr(a_ + ": lockstep: the last committed step is not saved: a signal came meanwhile"));
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(HostsTest, LongOutputComesWhole) {
  Job job(command(a_ + "," + b_, {}, {"sh", "-c", "seq 100000; printf end"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  const std::vector<std::string> lines = testing::lines(job.out());
  EXPECT_EQ(lines.size(), 200'002u);
  EXPECT_EQ(std::ranges::count(lines, a_ + ": 100000"), 1);
  EXPECT_EQ(std::ranges::count(lines, b_ + ": end"), 1);
}

// Nobody is left who could say anything: the end of its input ends the agent, the grace period its workers.
TEST_F(HostsTest, NothingIsLeftWhereTheStarterIsKilled) {
  Job job(command(a_ + "," + b_, {"--grace-period", "0.1"},
                  {"sh", "-c", "trap '' TERM; echo; while :; do sleep 0.01; done"}));
  job.wait_for_lines(2);
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(job.nothing_left(std::chrono::seconds(20)));
}

TEST_F(HostsTest, TheKeyIsInNoCommandLineAndNoEnvironment) {
  Job job(command(a_ + "," + b_, {}, {"sh", "-c", "tr '\\0' ' ' < /proc/$PPID/cmdline; cat /proc/$PPID/environ; env"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.out(), HasSubstr(" --by-starter --nnodes 2 "));
  EXPECT_THAT(job.out(), Not(::testing::ContainsRegex("[0-9a-f]{64}")));
  Job tied({"/bin/sh", "-c", "exec " LOCKSTEP_PROGRAM " run --by-starter echo < /dev/null"});
  EXPECT_EQ(tied.wait(), 2);
  EXPECT_THAT(tied.err(), HasSubstr("--by-starter: no key has come on standard input"));
}

TEST_F(HostsTest, ADryRunPrintsTheCommands) {
  Job job(command(a_ + "," + b_, {"--dry-run"}, {"echo"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(testing::lines(job.out()), Each(StartsWith(folder_.file("shell") + " 127.21")));
}

TEST_F(HostsTest, WhatSaysOtherwiseIsRefusedInOneLine) {
  const auto refused = [&](const std::string& hosts, const std::vector<std::string>& flags) {
    Job job(command(hosts, flags, {"echo"}));
    EXPECT_EQ(job.wait(), 2) << job.err();
    EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
    return job.err();
  };
  EXPECT_THAT(refused("a,a", {}), HasSubstr("run: --hosts: 'a' is there twice"));
  EXPECT_THAT(refused("/no/such/file", {}), HasSubstr("run: --hosts: the file '/no/such/file' cannot be read"));
  EXPECT_THAT(refused("a", {"--nnodes", "2"}), HasSubstr("run: --hosts and --nnodes: the number of nodes is"));
  EXPECT_THAT(refused("a", {"--node-rank", "1"}), HasSubstr("--hosts and --node-rank"));
  EXPECT_THAT(refused("a", {"--standalone"}), HasSubstr("--hosts and --standalone"));
  EXPECT_THAT(refused("a", {"--rdzv-backend", "c10d"}), HasSubstr("--hosts and --rdzv-backend c10d"));
  EXPECT_THAT(refused("a", {"-x", "NO_SUCH_VARIABLE"}), HasSubstr("-x NO_SUCH_VARIABLE: there is no such variable"));
  EXPECT_THAT(refused("a", {"-x", "A;B=1"}), HasSubstr("-x 'A;B=1' is not NAME or NAME=VALUE"));
  EXPECT_THAT(refused("a", {"--host-discovery-script", "x"}),
              HasSubstr("run: --host-discovery-script and --hosts: the hosts are those that the script prints"));
  EXPECT_THAT(refused("", {"--host-discovery-script", "x"}), HasSubstr("--host-discovery-script and --nnodes"));
  EXPECT_THAT(refused("", {"--host-discovery-script", "x", "--nnodes", "1:2", "--dry-run"}), HasSubstr("--dry-run"));
  EXPECT_THAT(refused("a", {"--remote-shell", " "}), HasSubstr("--remote-shell"));
}

// Real ssh. What sshd starts has none of this environment: the mark by which it is found travels with the job.
TEST_F(HostsTest, ThroughAnSshdOfItsOwn) {
  if (const std::string why = testing::no_sshd(); !why.empty()) GTEST_SKIP() << why;
  const auto on_hosts = [&](const std::vector<std::string>& flags, const std::string& program) {
    std::vector<std::string> all{
        LOCKSTEP_PROGRAM,         "run", "-x", "TEST_JOB_MARK", "--hosts", a_ + "," + b_, "--remote-shell",
        testing::own_ssh(folder_)};
    all.insert(all.end(), flags.begin(), flags.end());
    all.insert(all.end(), {"sh", "-c", program, "x", "it's \"$HOME\""});
    return testing::with_sshd(folder_, all);
  };
  // The first failure ends the others: it comes when the other has spoken.
  const std::string spoken = folder_.file("spoken");
  Job job(on_hosts({}, "echo $RANK/$WORLD_SIZE \"$1\"; [ $RANK = 1 ] || exec touch " + spoken + "; until [ -e " +
                           spoken + " ]; do sleep 0.01; done; exit 7"));
  EXPECT_EQ(job.wait(), 7) << job.err();
  EXPECT_THAT(testing::lines(job.out()),
              UnorderedElementsAre(a_ + ": 0/2 it's \"$HOME\"", b_ + ": 1/2 it's \"$HOME\""));
  EXPECT_TRUE(job.nothing_left());

  Job killed(on_hosts({"--grace-period", "0.1"}, "trap '' TERM; echo; while :; do sleep 0.01; done"));
  killed.wait_for_lines(2);
  const pid_t worker = testing::pid_of_rank(killed, 1);
  killed.signal(SIGKILL);
  killed.wait();
  EXPECT_TRUE(killed.nothing_left(std::chrono::seconds(20)));
  EXPECT_EQ(testing::process_state(worker), 0);
}

}  // namespace
}  // namespace lockstep
