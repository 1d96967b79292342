// The hosting agent is lost or cut off: the others go on where most of them meet, and never two halves do. Nodes in
// network namespaces of the test's own; each cell is a shell script. Node a hosts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "tests/multiprocess/beats.h"
#include "tests/multiprocess/routed_nodes.h"
#include "tests/multiprocess/two_nodes.h"
#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::in_namespace;
using testing::Job;
using testing::text_of;

// Silent for 1 s: then it is lost, and 1.4 s after its last word its workers have ended.
constexpr const char* kThreeAgents = R"sh(
$LOCKSTEP secret new > key
script='echo $NODE $RANK/$WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $MASTER_ADDR
while [ ! -e go ]; do read now rest < /proc/uptime; echo $MASTER_PORT $now >> beats.$NODE; sleep 0.05; done'
agent() {
  node=$1; shift
  NODE=$node exec "$@" $LOCKSTEP run --nnodes $nnodes --max-restarts 2 --grace-period 1 --rdzv-backend c10d \
    --rdzv-endpoint 10.77.1.2 --secret-file key \
    --rdzv-conf keep_alive_interval=0.2,keep_alive_max_attempt=5,last_call_timeout=9 \
    sh -c "$script" > $node.out 2> $node.err
}
agent a $in_a & a=$!
agent b $in_b & b=$!
agent c $in_c & c=$!
lines() { until [ "$(cat ?.out 2> /dev/null | wc -l)" -ge $1 ]; do sleep 0.01; done; }
ended() { while grep -q 'State:.[^Z]' /proc/$1/status 2> /dev/null; do sleep 0.01; done; }
first() { grep -l ' 1/3 ' b.out c.out | cut -d. -f1; }
lines 3
)sh";

constexpr const char* kEndOfThree = R"sh(
for name in a b c; do eval wait \$$name; echo $name $?; done
end_nodes
)sh";

struct HandOverCell {
  const char* name;
  const char* fault;
  const char* ends;  // exit codes
  const char* a_says;
  const char* others_say;
  const char* started_again = "2";  // of how many workers; "": none is
  const char* nnodes = "1:3";
};

const HandOverCell kHandOvers[] = {
    {"hosting agent killed", "kill -9 $a; lines 5; touch go", "a 137\nb 0\nc 0\n", "",
     "and go on where most of them meet"},
    {"hosting node gone", "kill -9 $a $(cat /proc/$a/task/*/children); lines 5; touch go", "a 137\nb 0\nc 0\n", "",
     " hosts now, at 10.77."},
    {"hosting node cut off, and the wire mended", "ip link set va down; lines 5; ended $a; ip link set va up; touch go",
     "a 1\nb 0\nc 0\n", "this node ends its workers: 2 of the 3 nodes are lost, and may go on without this one",
     " hosts now, at 10.77."},
    {"the wire mended before that", "ip link set va down; sleep 1.2; ip link set va up; lines 5; touch go",
     "a 1\nb 0\nc 0\n", "may go on without this one", " hosts now, at 10.77."},
    {"hosting agent stopped", "kill -STOP $a; lines 5; kill -CONT $a; ended $a; touch go", "a 1\nb 0\nc 0\n",
     "this agent hosts, and was stopped or too slow", " hosts now, at 10.77."},
    {"the hosting agent and the next one killed", "eval kill -9 $a \\$$(first); touch go",
     "a 137\nb [0-9]*\nc [0-9]*\n", "",
     "2 of the 3 nodes are needed to go on, and 1 is here: start the same command again", ""},
    {"as many as there must be", "kill -9 $a", "a 137\nb 1\nc 1\n", "", "start the same command again", "", "3"},
};

TEST(NodesHandOver, MostOfTheNodesGoOnAndNeverTwoHalves) {
  if (const std::string why = testing::no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  struct Running {
    testing::ScratchFolder folder;
    std::unique_ptr<Job> job;
  };
  // All at once: they spend their time with waiting.
  std::vector<std::unique_ptr<Running>> running;
  for (const HandOverCell& cell : kHandOvers) {
    running.push_back(std::make_unique<Running>());
    const std::string settings = "LOCKSTEP=" LOCKSTEP_PROGRAM "\nnnodes=" + std::string(cell.nnodes) + "\n";
    running.back()->job = std::make_unique<Job>(in_namespace(
        running.back()->folder, settings + testing::routed_nodes(3) + kThreeAgents + cell.fault + kEndOfThree));
  }
  for (std::size_t i = 0; i < running.size(); ++i) {
    const HandOverCell& cell = kHandOvers[i];
    Running& run = *running[i];
    const int code = run.job->wait();
    const auto text = [&](const char* name) { return text_of(run.folder.file(name)); };
    const std::string a = text("a.err"), others = text("b.err") + text("c.err");
    EXPECT_EQ(code, 0) << cell.name << run.job->err();
    EXPECT_THAT(run.job->out(), ::testing::MatchesRegex(cell.ends)) << cell.name << "\n" << a << others;
    EXPECT_THAT(a, HasSubstr(cell.a_says)) << cell.name;
    EXPECT_THAT(others, HasSubstr(cell.others_say)) << cell.name;
    EXPECT_EQ(testing::two_halves(text("beats.a") + text("beats.b") + text("beats.c")), "") << cell.name << a << others;
    const std::vector<std::string> said = testing::lines(text("a.out") + text("b.out") + text("c.out"));
    const std::string again = "/" + std::string(cell.started_again) + " 1 10.77.";
    for (const std::string& line : said)
      EXPECT_THAT(line, ::testing::AnyOf(HasSubstr("/3 0 10.77.1.2"), HasSubstr(again))) << cell.name;
    EXPECT_EQ(said.size(), *cell.started_again == '\0' ? 3u : 5u) << cell.name;
    EXPECT_TRUE(run.job->nothing_left()) << cell.name;
  }
}

// The state is in the memory of those who are left. A node that comes late joins where they have said.
TEST(NodesHandOver, OurTrainerHasTheBitsOfAnUndisturbedRunWithALateNode) {
  const testing::ScratchFolder folder;
  const std::string train = "exec " LOCKSTEP_PROGRAM
                            " train --dataset digits --model mlp --max-steps 400 --no-eval --logical-shards 3 "
                            "--global-batch-size 300 --seed 5";
  const auto weights = [](const std::string& out) { return out.substr(std::min(out.rfind("weights "), out.size())); };
  Job one({LOCKSTEP_PROGRAM, "run", "-n", "3", "sh", "-c", train});
  EXPECT_EQ(one.wait(), 0) << one.err();
  // Behind the loss of its host the job waits for the late one.
  const std::string again = folder.file("again");
  const std::string script = "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then touch " + again +
                             "; until [ $WORLD_SIZE = 3 ]; do sleep 0.05; done; fi; " + train;
  const auto command = [&](const std::string& endpoint, const std::string& hosts) {
    return std::vector<std::string>{LOCKSTEP_PROGRAM,
                                    "run",
                                    "--nnodes",
                                    "2:3",
                                    "--max-restarts",
                                    "1",
                                    "--rdzv-backend",
                                    "c10d",
                                    "--rdzv-endpoint",
                                    endpoint,
                                    "--rdzv-conf",
                                    "last_call_timeout=60,keep_alive_interval=0.5,is_host=" + hosts,
                                    "sh",
                                    "-c",
                                    script};
  };
  const std::string first =
      "127.201." + std::to_string(getpid() / 250 % 250) + "." + std::to_string(1 + getpid() % 250);
  Job host(command(first, "1")), b(command(first, "0")), c(command(first, "0"));
  host.wait_for_lines(1);
  host.signal(SIGKILL);
  testing::wait_until([&] { return access(again.c_str(), F_OK) == 0; });
  const std::string said = b.err() + c.err(), now = "hosts now, at ";
  const std::size_t at = said.find(now) + now.size();
  Job late(command(said.substr(at, said.find(": a node", at) - at), "0"));
  for (Job* job : {&b, &c, &late}) EXPECT_EQ(job->wait(), 0) << job->err();
  EXPECT_THAT(weights(one.out()), ::testing::StartsWith("weights "));
  EXPECT_EQ(weights(b.out() + c.out() + late.out()), weights(one.out()));
  for (Job* job : {&b, &c, &late}) EXPECT_TRUE(job->nothing_left());
}

}  // namespace
}  // namespace lockstep
