// Faults at random moments of each stage of a job over two nodes, in network namespaces of the test's own. Whatever the
// moment, every agent ends, with one of the exit codes that the fault allows, nothing is left, and workers of two
// generations never run at the same time. LOCKSTEP_FAULT_SEEDS=200 tries as many, LOCKSTEP_FAULT_REPORT=FILE writes
// what happened as a table.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/multiprocess/beats.h"
#include "tests/multiprocess/two_nodes.h"
#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using testing::Job;
using testing::text_of;
using testing::two_halves;

// Each worker says where it runs, and then twenty times a second that it does.
constexpr const char* kJob = R"sh(
$LOCKSTEP secret new > key
script='echo $NODE $$
while [ ! -e go ]; do read now rest < /proc/uptime; echo $MASTER_PORT $now >> beats.$NODE; sleep 0.05; done'
agent() {
  node=$1; shift
  NODE=$node exec "$@" $LOCKSTEP run --nnodes 1:2 --max-restarts 5 --grace-period 1 --rdzv-backend c10d \
    --rdzv-endpoint 10.77.0.1 --secret-file key \
    --rdzv-conf keep_alive_interval=0.5,keep_alive_max_attempt=6,last_call_timeout=2,join_timeout=8 \
    sh -c "$script" > $node.out 2> $node.err
}
agent a & a=$!
agent b $in_b & b=$!
lines() { until [ "$(cat a.out b.out 2> /dev/null | wc -l)" -ge $1 ]; do sleep 0.01; done; }
worker() { tail -n 1 $1.out | cut -d' ' -f2; }
)sh";

// The job goes on without the lost node, after 3 s of silence and a margin; then it may end.
constexpr const char* kAfterwards = R"sh(
sleep 6
touch go
wait $a; echo $?
wait $b; echo $?
kill $ns
)sh";

struct Stage {
  const char* name;
  const char* until;  // the stage has begun
  int most_delay;     // milliseconds after that
};

constexpr std::array kStages{
    Stage{"rendezvous", "", 150},
    Stage{"start", "lines 1", 40},
    Stage{"running", "lines 2; sleep 0.2", 500},
    Stage{"restart", "lines 2; kill -9 $(worker a)", 250},
    Stage{"end", "lines 2; touch go", 100},
};
constexpr std::size_t kFirstStage = 0, kLastStage = 4;

// What the agents may end with: in the middle, and besides where one of them may not be in yet, or be over already.
struct Fault {
  const char* name;
  const char* script;
  std::set<int> a, b;
  std::set<int> early_b, late_a, late_b;
};

const std::vector<Fault> kFaults{
    // as in docs/design/rendezvous.md
    {"a worker of the hosting node killed", "kill -9 $(worker a)", {0}, {0}, {}, {}, {}},
    {"a worker killed", "kill -9 $(worker b)", {0}, {0}, {}, {}, {}},
    {"agent killed", "kill -9 $b", {0}, {137}, {}, {}, {0}},
    {"hosting agent killed", "kill -9 $a", {137}, {1}, {2}, {0}, {0}},
    {"node gone", "kill -9 $b $(cat /proc/$b/task/*/children)", {0}, {137}, {}, {}, {0}},
    // One that was not in yet calls again when it goes on, and join_timeout is not over then.
    {"agent stopped for 5 s", "kill -STOP $b; sleep 5; kill -CONT $b", {0}, {1}, {0}, {}, {0}},
    {"wire cut for 1 s", "ip link set va down; sleep 1; ip link set va up", {0}, {0}, {}, {}, {}},
    {"wire cut for good", "ip link set va down", {0}, {1}, {2}, {}, {0}},
    {"not heard",
     "$in_b ip neigh replace 10.77.0.1 lladdr 02:00:00:00:00:99 nud permanent dev vb",
     {0},
     {1},
     {2},
     {},
     {0}},
    {"hears nothing",
     "ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:99 nud permanent dev va",
     {0},
     {1},
     {2},
     {},
     {0}},
    {"not heard for 1 s",
     "$in_b ip neigh replace 10.77.0.1 lladdr 02:00:00:00:00:99 nud permanent dev vb; sleep 1; "
     "$in_b ip neigh del 10.77.0.1 dev vb",
     {0},
     {0},
     {},
     {},
     {}},
    {"hears nothing for 1 s",
     "ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:99 nud permanent dev va; sleep 1; "
     "ip neigh del 10.77.0.2 dev va",
     {0},
     {0},
     {},
     {},
     {}},
    // As a firewall does it: both sides see a reset, and live.
    {"connection reset", "ss -K state connected sport = 29400 > ss.out", {0}, {1}, {0, 2}, {}, {0}},
    // It runs for a fifth of the time.
    {"slow reader",
     "for i in 1 2 3 4 5; do kill -STOP $b; sleep 0.4; kill -CONT $b; sleep 0.1; done",
     {0},
     {0},
     {},
     {},
     {}},
};

struct FaultTrial {
  int seed = 0;
  std::size_t stage = 0, fault = 0;
  int delay = 0;  // milliseconds
  testing::ScratchFolder folder;
  std::unique_ptr<Job> job;
  std::string happened;
};

// Every fault in every stage comes once in as many seeds as there are pairs.
std::unique_ptr<FaultTrial> trial_of(int seed) {
  auto trial = std::make_unique<FaultTrial>();
  const std::size_t pairs = kStages.size() * kFaults.size();
  const std::size_t pair = std::size_t(seed) * 11 % pairs;
  std::mt19937 random{unsigned(seed)};
  trial->seed = seed;
  trial->stage = pair % kStages.size();
  trial->fault = pair / kStages.size();
  trial->delay = int(random() % unsigned(kStages[trial->stage].most_delay + 1));
  std::ostringstream script;
  script << "LOCKSTEP=" LOCKSTEP_PROGRAM "\n"
         << testing::kTwoNodes << kJob << kStages[trial->stage].until << "\nsleep " << trial->delay / 1000 << "."
         << std::string(3 - std::to_string(trial->delay % 1000).size(), '0') << trial->delay % 1000 << "\n"
         << kFaults[trial->fault].script << kAfterwards;
  trial->job = std::make_unique<Job>(testing::in_namespace(trial->folder, script.str()));
  return trial;
}

std::string codes(const std::set<int>& allowed) {
  std::string text;
  for (const int code : allowed) text += (text.empty() ? "" : " or ") + std::to_string(code);
  return text;
}

std::set<int> joined(std::set<int> some, const std::set<int>& more, bool too) {
  if (too) some.insert(more.begin(), more.end());
  return some;
}

void check(FaultTrial& trial) {
  const Fault& fault = kFaults[trial.fault];
  const std::string name = "seed " + std::to_string(trial.seed) + ": " + kStages[trial.stage].name + ", " + fault.name +
                           " after " + std::to_string(trial.delay) + " ms";
  EXPECT_EQ(trial.job->wait(), 0) << name << trial.job->err();
  const std::string said = "\n" + text_of(trial.folder.file("a.err")) + text_of(trial.folder.file("b.err"));
  std::istringstream out(trial.job->out());
  int a = -1, b = -1;
  out >> a >> b;
  const bool early = trial.stage == kFirstStage, late = trial.stage == kLastStage;
  const std::set<int> a_may = joined(fault.a, fault.late_a, late);
  const std::set<int> b_may = joined(joined(fault.b, fault.early_b, early), fault.late_b, late);
  EXPECT_TRUE(a_may.contains(a)) << name << ": the hosting agent ended with " << a << ", not " << codes(a_may) << said;
  EXPECT_TRUE(b_may.contains(b)) << name << ": the other agent ended with " << b << ", not " << codes(b_may) << said;
  const bool left = !trial.job->nothing_left();
  EXPECT_FALSE(left) << name;
  const std::string halves = two_halves(text_of(trial.folder.file("beats.a")) + text_of(trial.folder.file("beats.b")));
  EXPECT_EQ(halves, "") << name << said;
  std::ostringstream row;
  row << "| " << trial.seed << " | " << kStages[trial.stage].name << ", " << trial.delay << " ms | " << fault.name
      << " | " << codes(a_may) << "; " << codes(b_may) << " | " << a << "; " << b << " | "
      << (left             ? "processes left"
          : halves.empty() ? ""
                           : halves)
      << " |\n";
  trial.happened = row.str();
}

int number_of(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

TEST(NodesFaults, TwoHalvesAreSeen) {
  EXPECT_EQ(two_halves("7 1.0\n7 2.0\n8 2.5\n7 1.5\n8 3.0\n"), "");
  EXPECT_EQ(two_halves("7 1.0\n8 1.5\n7 2.0\n8 3.0\n"), "workers of ports 7 and 8 ran at the same time");
}

TEST(NodesFaults, AtAnyMomentOfAnyStage) {
  if (const std::string why = testing::no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  constexpr int kAtATime = 20;  // they spend their time with waiting
  const int seeds = number_of("LOCKSTEP_FAULT_SEEDS", kAtATime);
  ASSERT_GT(seeds, 0) << "LOCKSTEP_FAULT_SEEDS is a number of trials";
  std::string rows;
  for (int first = 0; first < seeds; first += kAtATime) {
    std::vector<std::unique_ptr<FaultTrial>> trials;
    for (int seed = first; seed < std::min(first + kAtATime, seeds); ++seed) trials.push_back(trial_of(seed));
    for (const auto& trial : trials) {
      check(*trial);
      rows += trial->happened;
    }
  }
  if (const char* report = std::getenv("LOCKSTEP_FAULT_REPORT"))
    std::ofstream(report) << "| seed | stage, and how long after its beginning | fault | exit codes: hosting; other | "
                             "happened | besides |\n|---|---|---|---|---|---|\n"
                          << rows;
}

}  // namespace
}  // namespace lockstep
