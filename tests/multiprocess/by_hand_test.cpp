// Ranks that are started by hand, each with init_method, rank and world size: examples/14_by_hand.cpp.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/multiprocess/two_nodes.h"
#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::in_namespace;
using testing::Job;
using testing::no_namespaces;
using testing::ScratchFolder;
using testing::text_of;
using Words = std::vector<std::string>;

// Where this process alone listens.
std::string own_endpoint() {
  return "127.4." + std::to_string(getpid() / 250 % 250) + "." + std::to_string(1 + getpid() % 250) + ":29500";
}

class ByHand : public ::testing::Test {
 protected:
  Job& start(const Words& arguments, const Words& variables = {"LOCKSTEP_SOCKET_IFNAME=lo"}) {
    Words command = {BY_HAND};
    command.insert(command.end(), arguments.begin(), arguments.end());
    jobs_.push_back(std::make_unique<Job>(command, variables));
    return *jobs_.back();
  }

  void expect_three(const std::string& method, const std::string& backend = "auto",
                    const Words& variables = {"LOCKSTEP_SOCKET_IFNAME=lo"}) {
    jobs_.clear();
    for (int rank = 2; rank >= 0; --rank) start({method, std::to_string(rank), "3", backend}, variables);
    for (int rank = 2; rank >= 0; --rank) {
      Job& job = *jobs_[std::size_t(2 - rank)];
      EXPECT_EQ(job.wait(), 0) << job.err();
      EXPECT_EQ(job.out(),
                "rank " + std::to_string(rank) + " of 3, on its node " + std::to_string(rank) + " of 3: sum 6\n");
    }
  }

  // What all say that must end with 2.
  std::vector<std::string> refusals() {
    std::vector<std::string> said;
    for (const auto& job : jobs_) {
      EXPECT_EQ(job->wait(), 2) << job->err();
      said.push_back(job->err());
    }
    return said;
  }

  const ScratchFolder folder_;
  const std::string tcp_ = "tcp://" + own_endpoint();
  const std::string file_ = "file://" + folder_.file("meeting");
  std::vector<std::unique_ptr<Job>> jobs_;
};

TEST_F(ByHand, RanksMeetAtAnAddress) { expect_three(tcp_); }

TEST_F(ByHand, RanksMeetAtAnIpv6Address) {
  if (text_of("/proc/net/if_inet6").find(" lo\n") == std::string::npos) GTEST_SKIP() << "no IPv6 here";
  const int port = 20'000 + getpid() % 10'000;
  expect_three("tcp://[::1]:" + std::to_string(port));
  // And connect there. No interface is named: of lo the address of IPv4 would be taken.
  expect_three("tcp://[::1]:" + std::to_string(port + 1), "tcp", {});
  expect_three("tcp://[::1]:" + std::to_string(port + 2), "gloo", {});
}

TEST_F(ByHand, RanksMeetByAFile) {
  expect_three(file_);
  EXPECT_EQ(folder_.entries(), 0u);
}

TEST_F(ByHand, RanksMeetByTheVariablesOfTorch) {
  const std::string endpoint = own_endpoint();
  const Words variables = {"MASTER_ADDR=" + endpoint.substr(0, endpoint.find(':')), "MASTER_PORT=29500"};
  for (const char* rank : {"0", "1"}) start({"env://", rank, "2"}, variables);
  for (const auto& job : jobs_) {
    EXPECT_EQ(job->wait(), 0) << job->err();
    EXPECT_THAT(job->out(), HasSubstr("of 2: sum 3\n"));
  }
}

TEST_F(ByHand, SharedMemoryMayBeAskedFor) { expect_three(tcp_, "shm"); }

TEST_F(ByHand, TcpMayBeAskedForOnOneNode) { expect_three(tcp_, "tcp"); }

TEST_F(ByHand, GlooMayBeAskedForOnOneNode) { expect_three(tcp_, "gloo"); }

TEST_F(ByHand, UnderALauncherNumbersAndBackendMayBeGivenToo) {
  for (const std::string backend : {"auto", "shm", "tcp", "gloo"}) {
    Job job({LOCKSTEP_PROGRAM, "run", "-n", "2", "sh", "-c", "exec " BY_HAND " env:// $RANK $WORLD_SIZE " + backend});
    EXPECT_EQ(job.wait(), 0) << job.err();
    EXPECT_THAT(testing::lines(job.out()), ::testing::UnorderedElementsAre("rank 0 of 2, on its node 0 of 2: sum 3",
                                                                           "rank 1 of 2, on its node 1 of 2: sum 3"))
        << backend;
  }
}

TEST_F(ByHand, WorldSizesThatDifferAreBothNamed) {
  start({tcp_, "0", "2"});
  start({tcp_, "1", "3"});
  EXPECT_THAT(refusals(), Each(AllOf(HasSubstr("rank 1 (process "),
                                     HasSubstr("was started with world_size 3, rank 0 ("), HasSubstr(" with 2"))));
}

TEST_F(ByHand, TwoWithOneNumberAreNamed) {
  for (const char* rank : {"0", "1", "1"}) start({tcp_, rank, "3"});
  EXPECT_THAT(refusals(), Each(HasSubstr("two processes are rank 1: ")));
}

TEST_F(ByHand, WhatIsWrongIsToldInALine) {
  start({"tpc://node0:29500", "0", "2"});
  start({tcp_, "2", "2"});
  start({tcp_, "0", "2", "glooo"});
  const std::vector<std::string> said = refusals();
  EXPECT_THAT(said[0], HasSubstr("did you mean tcp://?"));
  EXPECT_THAT(said[1], HasSubstr("rank 2 is none of the ranks 0 to 1 of world_size 2"));
  EXPECT_THAT(said[2], HasSubstr("unknown backend 'glooo': did you mean 'gloo'?"));
}

TEST_F(ByHand, WhoDoesNotComeIsNamedToAll) {
  for (const char* rank : {"0", "2"}) start({tcp_, rank, "4", "auto", "2"});
  for (const auto& job : jobs_) {
    EXPECT_EQ(job->wait(), 1);
    EXPECT_THAT(job->err(), AllOf(HasSubstr("these ranks did not come to " + tcp_ + " within 2 s: 1, 3")));
  }
}

TEST_F(ByHand, AFileOfAKilledStartIsToldAndAFreshOneWorks) {
  Job& zero = start({file_, "0", "3"});
  while (text_of(folder_.file("meeting")).empty()) usleep(1000);
  zero.signal(SIGKILL);
  zero.wait();
  jobs_.clear();
  start({file_, "0", "3"});
  EXPECT_THAT(refusals(), Each(HasSubstr("is not empty; where an earlier start has left it, remove it")));
  unlink(folder_.file("meeting").c_str());
  expect_three(file_);
}

std::string said_by_four(const ScratchFolder& folder) {
  std::string said;
  for (const char* rank : {"0", "1", "2", "3"})
    said += text_of(folder.file(std::string(rank) + ".out")) + text_of(folder.file(std::string(rank) + ".err"));
  return said;
}

// Two ranks on each of two nodes, and what each says.
std::string on_two_nodes(const std::string& method, const std::string& backend, const ScratchFolder& folder) {
  const std::string script =
      testing::kTwoNodes + ("$in_b ip link set lo up\nrank() { n=$1; shift; \"$@\" " BY_HAND " " + method + " $n 4 " +
                            backend + R"sh( > $n.out 2> $n.err; }
pids=
rank 3 $in_b env LOCKSTEP_SOCKET_IFNAME=vb & pids="$pids $!"
rank 2 $in_b env LOCKSTEP_SOCKET_IFNAME=vb & pids="$pids $!"
rank 1 env LOCKSTEP_SOCKET_IFNAME=va & pids="$pids $!"
rank 0 env LOCKSTEP_SOCKET_IFNAME=va & pids="$pids $!"
for pid in $pids; do wait $pid; done
kill $ns
)sh");
  Job job(in_namespace(folder, script));
  job.wait();
  return said_by_four(folder);
}

class ByHandOnTwoNodes : public ByHand {
 protected:
  void SetUp() override {
    if (const std::string why = no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  }
};

constexpr const char* kAllWell =
    "rank 0 of 4, on its node 0 of 2: sum 10\n"
    "rank 1 of 4, on its node 1 of 2: sum 10\n"
    "rank 2 of 4, on its node 0 of 2: sum 10\n"
    "rank 3 of 4, on its node 1 of 2: sum 10\n";

TEST_F(ByHandOnTwoNodes, RanksFindTheirNodesAtAnAddress) {
  EXPECT_EQ(on_two_nodes("tcp://10.77.0.1:29500", "auto", folder_), kAllWell);
}

TEST_F(ByHandOnTwoNodes, RanksFindTheirNodesByAFile) { EXPECT_EQ(on_two_nodes(file_, "tcp", folder_), kAllWell); }

TEST_F(ByHandOnTwoNodes, ShmNamesTwoRanksOnDifferentNodes) {
  EXPECT_THAT(on_two_nodes("tcp://10.77.0.1:29500", "shm", folder_),
              AllOf(HasSubstr("backend 'shm' is for ranks of one node"), HasSubstr("are on different ones")));
}

// On one network, but none sees the processes of the others.
TEST_F(ByHandOnTwoNodes, RanksWithOtherProcessesAreOnOtherNodes) {
  const std::string apart = "unshare --pid --fork --mount-proc ";
  if (Job trial(in_namespace(folder_, apart + "true")); trial.wait() != 0)
    GTEST_SKIP() << "no namespaces of processes here: " << trial.err();
  Job job(in_namespace(folder_, "ip link set lo up\necho 'exec " BY_HAND
                                " tcp://127.0.0.1:29500 $1 4 > $1.out 2> $1.err' > rank\n" +
                                    apart + R"sh(sh -c 'sh rank 2 & sh rank 3 & wait' & there=$!
sh rank 0 & zero=$!
sh rank 1
wait $zero
wait $there
)sh"));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(said_by_four(folder_), kAllWell);
}

// The blocks of docs/guide/launching.md between ```sh and ```, as they stand.
TEST_F(ByHandOnTwoNodes, TheCommandsOfTheGuideRun) {
  const std::string page = text_of(GUIDE "/launching.md");
  const std::size_t at = page.find("```sh\n") + 6;
  ASSERT_EQ(page.find("```sh\n", at), std::string::npos);
  std::string script = page.substr(at, page.find("```", at) - at);
  // In a network of its own, whose ports are free, and a folder of its own.
  const std::string bin = std::string(BY_HAND).substr(0, std::string(BY_HAND).rfind('/') + 1);
  for (const auto& [shown, here] : {std::pair{std::string("build/bin/"), bin}, {"/tmp/", folder_.path() + "/"}})
    for (std::size_t found = 0; (found = script.find(shown, found)) != std::string::npos; found += here.size())
      script.replace(found, shown.size(), here);
  Job job(in_namespace(folder_, "set -e\nip link set lo up\n" + script));
  EXPECT_EQ(job.wait(), 0) << job.err();
  Words lines = testing::lines(job.out());
  EXPECT_THAT(lines, ::testing::UnorderedElementsAre(
                         "rank 0 of 2, on its node 0 of 2: sum 3", "rank 1 of 2, on its node 1 of 2: sum 3",
                         "rank 0 of 2, on its node 0 of 2: sum 3", "rank 1 of 2, on its node 1 of 2: sum 3"));
}

}  // namespace
}  // namespace lockstep
