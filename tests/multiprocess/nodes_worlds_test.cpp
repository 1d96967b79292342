// Our trainer over two to four nodes with one to three workers each, in network namespaces of the test's own. However
// the ranks are spread, whoever comes late, dies, is cut off or steps in: the weights, and the loss of each step, are
// those of one machine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/multiprocess/routed_nodes.h"
#include "tests/multiprocess/two_nodes.h"
#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::Job;
using ::testing::MatchesRegex;
using ::testing::StartsWith;
using testing::text_of;

// All nodes see the folder of the run.
constexpr const char* kTrain =
    "exec " LOCKSTEP_PROGRAM
    " train --dataset digits --model mlp --max-steps 200 --no-eval --logical-shards 6 --global-batch-size 300 --seed 5 "
    "--print-freq 1 --output-dir run";

// `agent NODE WORKERS` on a node; the first one hosts. Before it trains a worker does what `before` says.
constexpr const char* kWorlds = R"sh(
$LOCKSTEP secret new > key
agent() {
  eval into=\$in_$1
  NODE=$1 exec $into $LOCKSTEP run --nnodes $nnodes -n $2 --max-restarts 3 --rdzv-backend c10d \
    --rdzv-endpoint 10.77.1.2 --rdzv-conf keep_alive_interval=0.5,last_call_timeout=0.5$more --secret-file key \
    sh -c "$before $train" > $1.out 2> $1.err
}
up() { until [ -e up.$1 ]; do sleep 0.02; done; }
cut_wire_of_b() { until [ -e held ]; do sleep 0.01; done; ip link set vb down; touch is_cut; }
)sh";

struct World {
  std::string name;
  int nodes;
  std::string nnodes;
  std::string before;  // of a worker
  std::string agents;
  std::string ends;       // exit codes, in the order of the nodes: a regular expression
  std::string more = {};  // of the trainer's flags
};

// A first attempt's worker dies at some moment of it; or kills its agent; or all of its node.
#define FIRST_OF_B "[ $NODE$TORCHELASTIC_RESTART_COUNT = b0 ] && "
// Or it stands still behind some steps until its wire is cut: the others wait for it there.
#define HELD_IN_B FIRST_OF_B "(until " HAS_STEPPED "; do sleep 0.01; done; " STANDS_STILL ") &"
#define HAS_STEPPED "[ \"$(sed -n 3p run/metrics.jsonl 2> /dev/null)\" ]"
#define STANDS_STILL "kill -STOP $$; touch held; until [ -e is_cut ]; do sleep 0.01; done; kill -CONT $$"
const std::vector<World> kWorldCells = {
    {"two nodes, three workers and one", 2, "2", "", "agent a 3 & a=$!; agent b 1 & b=$!", "0 0"},
    {"three nodes, unequal", 3, "3", "", "agent a 1 & a=$!; agent b 2 & b=$!; agent c 1 & c=$!", "0 0 0",
     " --overlap-bytes 1024"},
    {"four nodes", 4, "4", "", "agent a 1 & a=$!; agent b 1 & b=$!; agent c 1 & c=$!; agent d 2 & d=$!", "0 0 0 0"},
    {"a late comer", 2, "1:2", "touch up.$NODE; until [ $WORLD_SIZE = 2 ]; do sleep 0.05; done;",
     "agent a 1 & a=$!; up a; agent b 1 & b=$!", "0 0"},
    // What holds it up is in its process group, and tells of a signal that it is sent meanwhile.
    {"one that comes while another trains, which is held up until then", 2, "1:2",
     "[ $WORLD_SIZE = 1 ] && (trap \"touch cut\" TERM; until [ -s run/metrics.jsonl ]; do sleep 0.01; done; "
     "kill -STOP $$; sleep 2; kill -CONT $$) &",
     "agent a 1 & a=$!; until [ -s run/metrics.jsonl ]; do sleep 0.01; done; agent b 2 & b=$!", "0 0"},
    {"a worker killed", 2, "2", FIRST_OF_B "(sleep 0.7; kill -9 $$) &", "agent a 1 & a=$!; agent b 1 & b=$!", "0 0",
     " --overlap-bytes 1024"},
    {"an agent killed, and a spare steps in", 3, "2", "touch up.$NODE; " FIRST_OF_B "(sleep 0.7; kill -9 $PPID) &",
     "agent a 1 & a=$!; agent b 2 & b=$!; up a; up b; agent c 2 & c=$!", "0 137 0"},
    // Of whose share the other one has a copy: no checkpoint is needed.
    {"a node gone, and a spare steps in", 3, "2",
     "touch up.$NODE; " FIRST_OF_B "(sleep 0.7; kill -9 $PPID $(cat /proc/$PPID/task/*/children)) &",
     "agent a 1 & a=$!; agent b 1 & b=$!; up a; up b; agent c 1 & c=$!", "0 137 0", " --zero1 copied"},
    {"a node gone from a job of two, and the other goes on", 2, "1:2",
     "until [ $WORLD_SIZE = 2 ] || [ $TORCHELASTIC_RESTART_COUNT = 1 ]; do sleep 0.05; done; " FIRST_OF_B
     "(until [ -s run/metrics.jsonl ]; do sleep 0.01; done; kill -9 $PPID $(cat /proc/$PPID/task/*/children)) &",
     "agent a 1 & a=$!; agent b 1 & b=$!", "0 137"},
    {"a wire cut for a second", 2, "2", HELD_IN_B,
     "more=,keep_alive_max_attempt=20; agent a 1 & a=$!; agent b 1 & b=$!; cut_wire_of_b; sleep 1; ip link set vb up",
     "0 0"},
    {"a wire cut for good in a job of two, and the other goes on", 2, "1:2",
     "until [ $WORLD_SIZE = 2 ] || [ $TORCHELASTIC_RESTART_COUNT = 1 ]; do sleep 0.05; done; " HELD_IN_B,
     "agent a 1 & a=$!; agent b 1 & b=$!; cut_wire_of_b", "0 1"},
    {"a wire cut, and mended when a spare has stepped in", 3, "2", "touch up.$NODE; " HELD_IN_B,
     "agent a 1 & a=$!; agent b 1 & b=$!; up a; up b; agent c 1 & c=$!; cut_wire_of_b; up c; ip link set vb up",
     "0 1 0"},
    {"shares of the optimizer's state", 2, "2", "", "agent a 3 & a=$!; agent b 1 & b=$!", "0 0", " --zero1"},
    // The first share goes with it, and the run back to its own checkpoint.
    {"a node gone with its share, and a spare steps in", 3, "2",
     "touch up.$NODE; " FIRST_OF_B "(until [ -e run/checkpoints/last ]; do sleep 0.01; done; "
     "kill -9 $PPID $(cat /proc/$PPID/task/*/children)) &",
     "agent a 1 & a=$!; agent b 1 & b=$!; up a; up b; agent c 1 & c=$!", "0 137 0", " --zero1 --save-every 20"},
};
#undef HELD_IN_B
#undef HAS_STEPPED
#undef STANDS_STILL
#undef FIRST_OF_B

std::string weights_of(const std::string& out) { return out.substr(std::min(out.rfind("weights "), out.size())); }

// Each step with its loss; one that is said twice is there once, unless two histories told of it.
std::set<std::pair<std::int64_t, double>> losses_in(const std::string& metrics) {
  std::set<std::pair<std::int64_t, double>> losses;
  for (const std::string& line : testing::lines(metrics))
    if (const nlohmann::json event = nlohmann::json::parse(line); event.at("event") == "train")
      losses.emplace(event.at("step").get<std::int64_t>(), event.at("loss").get<double>());
  return losses;
}

struct OneMachine {
  std::string weights;
  std::set<std::pair<std::int64_t, double>> losses;
};

OneMachine trained_on_one() {
  const testing::ScratchFolder folder;
  Job job({LOCKSTEP_PROGRAM, "run", "sh", "-c", "cd " + folder.path() + "; " + kTrain});
  EXPECT_EQ(job.wait(), 0) << job.err();
  const OneMachine one{.weights = weights_of(job.out()),
                       .losses = losses_in(text_of(folder.file("run/metrics.jsonl")))};
  EXPECT_THAT(one.weights, StartsWith("weights "));
  EXPECT_EQ(one.losses.size(), 200u);
  return one;
}

// A world under way, in a network and a folder of its own.
class StartedWorld {
 public:
  explicit StartedWorld(const World& world) : world_(world), job_(testing::in_namespace(folder_, script_of(world))) {}

  // Waits for its end; the exit codes.
  std::string expect_what_one_has(const OneMachine& one) {
    EXPECT_EQ(job_.wait(), 0) << world_.name << job_.err();
    std::string out, err;
    for (const char* name : {"a", "b", "c", "d"}) {
      out += text_of(folder_.file(std::string(name) + ".out"));
      err += text_of(folder_.file(std::string(name) + ".err"));
    }
    EXPECT_THAT(job_.out(), MatchesRegex(world_.ends + " ")) << world_.name << "\n" << err;
    EXPECT_EQ(weights_of(out), one.weights) << world_.name << "\n" << err;
    EXPECT_EQ(err.find(" waves") != err.npos, world_.more.find("overlap") != err.npos) << world_.name << "\n" << err;
    const std::string metrics = text_of(folder_.file("run/metrics.jsonl"));
    EXPECT_THAT(metrics, HasSubstr("\"event\":\"done\"")) << world_.name;
    EXPECT_EQ(losses_in(metrics), one.losses) << world_.name;
    EXPECT_FALSE(std::filesystem::exists(folder_.file("cut"))) << world_.name << ": a step was cut short";
    EXPECT_TRUE(job_.nothing_left()) << world_.name;
    return job_.out();
  }

 private:
  static std::string script_of(const World& world) {
    std::string script = testing::routed_nodes(world.nodes) + "LOCKSTEP=" LOCKSTEP_PROGRAM " nnodes=" + world.nnodes +
                         " train='" + kTrain + world.more + "'\nbefore='" + world.before + "'\n" + kWorlds +
                         world.agents + "\n";
    for (int node = 0; node < world.nodes; ++node) {
      const std::string name(1, char('a' + node));
      script += "wait $" + name + "; printf '%s ' $?\n";
    }
    return script + "end_nodes";
  }

  const World world_;
  const testing::ScratchFolder folder_;
  Job job_;
};

// Each one's exit codes. Two at the same time: while one waits for a node that is lost, the other trains.
std::vector<std::string> ends_of(const std::vector<World>& worlds) {
  const OneMachine one = trained_on_one();
  std::vector<std::string> ends;
  std::deque<std::unique_ptr<StartedWorld>> started;
  const auto end_first = [&] {
    ends.push_back(started.front()->expect_what_one_has(one));
    started.pop_front();
  };
  for (const World& world : worlds) {
    started.push_back(std::make_unique<StartedWorld>(world));
    if (started.size() > 1) end_first();
  }
  while (!started.empty()) end_first();
  return ends;
}

TEST(NodesWorlds, OurTrainerHasTheWeightsOfOneMachine) {
  if (const std::string why = testing::no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  (void)ends_of(kWorldCells);
}

// At a moment of the run that the seed draws, which may be over by then: for a moment, or for good, and the other node
// goes on.
World cut_at_random(int seed) {
  std::mt19937 random{unsigned(seed)};
  const int delay = int(random() % 700);
  const bool for_good = seed % 2 != 0;
  World world{.name = std::string(for_good ? "for good" : "for 0.3 s") + ", " + std::to_string(delay) + " ms",
              .nodes = 2,
              .nnodes = "2",
              .before = "",
              .agents =
                  "agent a 1 & a=$!; agent b 1 & b=$!; until [ -s run/metrics.jsonl ]; do sleep 0.01; done; "
                  "sleep 0." +
                  std::to_string(1000 + delay).substr(1) + "; ip link set vb down",
              .ends = "0 0"};
  if (for_good) {
    world.nnodes = "1:2";
    world.before = "until [ $WORLD_SIZE = 2 ] || [ $TORCHELASTIC_RESTART_COUNT = 1 ]; do sleep 0.05; done;";
    world.ends = "0 [01]";
  } else {
    world.agents = "more=,keep_alive_max_attempt=20; " + world.agents + "; sleep 0.3; ip link set vb up";
  }
  return world;
}

// LOCKSTEP_CUT_SEEDS=300 tries as many, LOCKSTEP_CUT_REPORT=FILE writes what happened as a table.
TEST(NodesWorlds, OurTrainerHasTheWeightsOfOneMachineWheneverAWireIsCut) {
  if (const std::string why = testing::no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  const char* const asked = std::getenv("LOCKSTEP_CUT_SEEDS");
  const int seeds = asked == nullptr ? 2 : std::atoi(asked);
  ASSERT_GT(seeds, 0) << "LOCKSTEP_CUT_SEEDS is a number of cuts";
  std::vector<World> worlds;
  for (int seed = 0; seed < seeds; ++seed) worlds.push_back(cut_at_random(seed));
  const std::vector<std::string> ends = ends_of(worlds);
  const char* const report = std::getenv("LOCKSTEP_CUT_REPORT");
  if (report == nullptr) return;
  std::ofstream rows(report);
  rows << "| seed | cut, and how long behind the first step | exit codes |\n|---|---|---|\n";
  for (std::size_t seed = 0; seed < ends.size(); ++seed)
    rows << "| " << seed << " | " << worlds[seed].name << " | " << ends[seed] << "|\n";
}

}  // namespace
}  // namespace lockstep
