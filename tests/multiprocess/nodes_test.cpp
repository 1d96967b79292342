// Jobs over several nodes: agents that meet on loopback addresses of their own, as they would over a network.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "lockstep/base/unique_fd.h"
#include "tests/multiprocess/nodes_fixture.h"
#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Job;
using testing::NodesTest;
using ::testing::UnorderedElementsAre;

TEST_F(NodesTest, WorkersAreCountedThroughTheNodes) {
  const std::string script =
      "echo $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $ROLE_RANK/$ROLE_WORLD_SIZE "
      "$MASTER_ADDR ${MASTER_PORT:+port} $TORCHELASTIC_RUN_ID ${LOCKSTEP_SECRET_FILE:-none}";
  Job& a = agent({"--nnodes", "2", "--rdzv-id", "job", "-n", "2"}, script);
  a.wait_for_lines(0);
  Job& b = agent({"--nnodes", "2", "--rdzv-id", "job", "-n", "1"}, script);
  EXPECT_EQ(a.wait(), 0) << a.err();
  EXPECT_EQ(b.wait(), 0) << b.err();
  const bool a_hosts = a.out().starts_with("0/2");
  const std::string end = " " + address_ + " port job none";
  if (a_hosts)
    EXPECT_THAT(lines(),
                UnorderedElementsAre("0/2 0/3 0/2 0/3" + end, "0/2 1/3 1/2 1/3" + end, "1/2 2/3 0/1 2/3" + end));
  else
    EXPECT_THAT(lines(),
                UnorderedElementsAre("0/2 0/3 0/1 0/3" + end, "1/2 1/3 0/2 1/3" + end, "1/2 2/3 1/2 2/3" + end));
  expect_nothing_left();
}

TEST_F(NodesTest, StaticRanksAreThoseThatTheNodesName) {
  std::vector<std::string> flags{"--rdzv-backend", "static", "--nnodes", "3", "--node-rank"};
  for (const char* rank : {"2", "1", "0"}) {
    flags.push_back(rank);
    agent(flags, "echo " + std::string(rank) + "=$RANK");
    flags.pop_back();
  }
  for (const auto& job : jobs_) EXPECT_EQ(job->wait(), 0) << job->err();
  EXPECT_THAT(lines(), UnorderedElementsAre("0=0", "1=1", "2=2"));
}

TEST_F(NodesTest, AsManyAsTheSchedulerSays) {
  for (const char* rank : {"1", "0"}) {
    const std::vector<std::string> slurm{"SLURM_JOB_ID=7",
                                         "SLURM_STEP_ID=0",
                                         "SLURM_NTASKS=2",
                                         "SLURM_STEP_NUM_NODES=2",
                                         "SLURM_STEP_TASKS_PER_NODE=1(x2)",
                                         "SLURM_STEP_NODELIST=" + address_ + ",127.250.1.1",
                                         std::string("SLURM_PROCID=") + rank,
                                         std::string("SLURM_NODEID=") + rank};
    const std::vector<std::string> command{
        LOCKSTEP_PROGRAM, "run", "--nnodes", "auto", "sh", "-c", "echo $GROUP_RANK/$WORLD_SIZE $MASTER_ADDR"};
    jobs_.push_back(std::make_unique<Job>(command, slurm));
  }
  for (const auto& job : jobs_) EXPECT_EQ(job->wait(), 0) << job->err();
  EXPECT_EQ(jobs_[0]->out(), "1/2 " + address_ + "\n");
  EXPECT_EQ(jobs_[1]->out(), "0/2 " + address_ + "\n");
}

// torchrun's usual line in a SLURM script: the tasks of the step are agents, of which each node has one.
TEST_F(NodesTest, ATaskOfAStepIsAnAgentWhereTheNumberOfNodesIsGiven) {
  const auto task = [&](const std::vector<std::string>& flags, const std::string& rank, const char* per_node) -> Job& {
    const std::vector<std::string> slurm{"SLURM_JOB_ID=7",         "SLURM_STEP_ID=0",
                                         "SLURM_NTASKS=2",         "SLURM_JOB_NODELIST=" + address_ + ",127.250.1.1",
                                         "SLURM_STEP_NUM_NODES=2", std::string("SLURM_STEP_TASKS_PER_NODE=") + per_node,
                                         "SLURM_PROCID=" + rank,   "SLURM_LOCALID=0",
                                         "SLURM_NODEID=" + rank};
    std::vector<std::string> command{LOCKSTEP_PROGRAM, "run"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"sh", "-c", "echo $GROUP_RANK/$WORLD_SIZE"});
    jobs_.push_back(std::make_unique<Job>(command, slurm));
    return *jobs_.back();
  };
  const std::vector<std::string> by_rank{"--nnodes", "2", "--rdzv-endpoint", address_};
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", address_ + ":29400"},
        std::vector<std::string>{"--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", address_ + ":29400"},
        by_rank}) {
    Job& b = task(flags, "1", "1(x2)");
    Job& a = task(flags, "0", "1(x2)");
    EXPECT_EQ(a.wait(), 0) << a.err();
    EXPECT_EQ(b.wait(), 0) << b.err();
    EXPECT_THAT(testing::lines(a.out() + b.out()), UnorderedElementsAre("0/2", "1/2"));
    if (flags == by_rank) {
      EXPECT_EQ(a.out(), "0/2\n");
    }
  }
  Job& one_of_many = task({"--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", address_}, "0", "2,1");
  EXPECT_EQ(one_of_many.wait(), 2);
  EXPECT_THAT(one_of_many.err(), HasSubstr("run: --nnodes 1:2: SLURM has started 2 tasks on this node "
                                           "(SLURM_STEP_TASKS_PER_NODE): start one per node"));
}

// As the pods of an indexed job, whose number Kubernetes does not tell.
TEST_F(NodesTest, TheRankIsTheSchedulersWhereNoneIsGiven) {
  const auto pod = [&](const std::string& index, std::vector<std::string> flags) -> Job& {
    std::vector<std::string> command{LOCKSTEP_PROGRAM, "run"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"sh", "-c", "echo $GROUP_RANK/$WORLD_SIZE"});
    jobs_.push_back(std::make_unique<Job>(
        command, std::vector<std::string>{"KUBERNETES_SERVICE_HOST=10.96.0.1", "JOB_COMPLETION_INDEX=" + index}));
    return *jobs_.back();
  };
  const std::vector<std::string> two{"--nnodes", "2", "--rdzv-endpoint", address_};
  Job& b = pod("1", two);
  Job& a = pod("0", two);
  EXPECT_EQ(a.wait(), 0) << a.err();
  EXPECT_EQ(b.wait(), 0) << b.err();
  EXPECT_EQ(a.out() + b.out(), "0/2\n1/2\n");
  // What is given counts.
  Job& second = pod("0", {"--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", address_});
  Job& first = pod("7", {"--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", address_});
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_EQ(first.out() + second.out(), "0/2\n1/2\n");
  Job& beyond = pod("2", two);
  EXPECT_EQ(beyond.wait(), 2);
  EXPECT_THAT(beyond.err(), HasSubstr("--nnodes 2: this is node 2 by JOB_COMPLETION_INDEX, but there are 2 nodes"));
  Job& nowhere = pod("1", {"--nnodes", "2"});
  EXPECT_EQ(nowhere.wait(), 2);
  EXPECT_THAT(nowhere.err(), HasSubstr("--nnodes 2: the scheduler does not say where the nodes can meet"));
}

// torchrun's two nodes would both write [default0]: and attempt_0/0.
TEST_F(NodesTest, LogsAreNamedByTheRanksOfTheJob) {
  const testing::ScratchFolder folder;
  const auto node = [&](const char* rank, const char* streams) -> Job& {
    return agent({"--rdzv-backend", "static", "--nnodes", "2", "--node-rank", rank, "-n", "2", "--rdzv-id", "job",
                  "--log-dir", folder.file(rank), "-t", streams},
                 "echo out of $RANK; echo err of $RANK >&2");
  };
  Job& b = node("1", "0:1,1:3");
  Job& a = node("0", "3");
  EXPECT_EQ(a.wait(), 0) << a.err();
  EXPECT_EQ(b.wait(), 0) << b.err();
  EXPECT_THAT(lines(), ::testing::IsSupersetOf({"[default0]:out of 0", "[default1]:out of 1", "[default2]:out of 2",
                                                "[default3]:out of 3"}));
  EXPECT_THAT(a.err(), HasSubstr("[default1]:err of 1\n"));
  EXPECT_THAT(b.err(), AllOf(HasSubstr("[default3]:err of 3\n"), HasSubstr("err of 2\n")));
  EXPECT_THAT(b.err(), ::testing::Not(HasSubstr("[default2]:err")));
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    if (entry.path().filename() == "stdout.log") {
      std::ifstream file(entry.path());
      std::string line;
      std::getline(file, line);
      files.push_back(entry.path().parent_path().parent_path().filename().string() + "/" +
                      entry.path().parent_path().filename().string() + " " + line);
    }
  EXPECT_THAT(files, UnorderedElementsAre("attempt_0/0 out of 0", "attempt_0/1 out of 1", "attempt_0/2 out of 2",
                                          "attempt_0/3 out of 3"));
}

TEST_F(NodesTest, TheFirstFailureIsToldOnEveryNodeAndEndsTheJobEverywhere) {
  const testing::ScratchFolder folder;
  const std::string script = "if [ $RANK = 2 ]; then exit 7; fi; sleep 1000";
  Job& a = agent({"--nnodes", "2", "-n", "2", "--report", folder.file("a")}, script);
  Job& b = agent({"--nnodes", "2", "-n", "2", "--report", folder.file("b")}, script);
  for (Job* job : {&a, &b}) {
    EXPECT_EQ(job->wait(), 7);
    EXPECT_THAT(job->err(), AllOf(HasSubstr("lockstep: rank 2 failed: exit code 7"), HasSubstr("3 more ranks ended")));
    EXPECT_EQ(testing::lines(job->err()).size(), 2u) << job->err();
  }
  expect_nothing_left();
  // The hosting agent's report is that of all nodes, the other's its own.
  for (const char* name : {"a", "b"}) {
    const nlohmann::json report = nlohmann::json::parse(std::ifstream(folder.file(name)));
    const nlohmann::json& attempt = report["attempts"][0];
    const bool hosts = report["node"]["rank"] == 0;
    EXPECT_EQ(report["exit_code"], 7);
    EXPECT_EQ(report["node"]["nodes"], 2);
    EXPECT_EQ(attempt["first_failure"]["rank"], 2);
    EXPECT_TRUE(attempt["first_failure_elsewhere"].is_null());
    EXPECT_EQ(attempt["ends"].size(), hosts ? 4u : 2u);
    EXPECT_EQ(report["workers"], hosts ? 4 : 2);
    EXPECT_EQ(report.contains("nodes"), hosts);
    EXPECT_TRUE(!hosts || report["nodes"][1]["reported"]);
  }
}

// Who does not write one sends it all the same, and who is gone is not waited for.
TEST_F(NodesTest, TheReportNamesNodesThatWereLost) {
  const testing::ScratchFolder folder;
  const std::string script =
      "echo; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $GROUP_RANK = 1 ] && kill -9 $PPID; sleep 1000";
  const std::string conf = "keep_alive_interval=0.3,is_host=";
  Job& host = agent({"--nnodes", "1:2", "--max-restarts", "1", "--rdzv-conf", conf + "1", "--report", folder.file("r")},
                    script);
  Job& lost = agent({"--nnodes", "1:2", "--max-restarts", "1", "--rdzv-conf", conf + "0"}, script);
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_EQ(lost.wait(), 128 + SIGKILL);
  const nlohmann::json report = nlohmann::json::parse(std::ifstream(folder.file("r")));
  EXPECT_THAT(report["attempts"][0]["first_failure_elsewhere"], HasSubstr("is lost: "));
  ASSERT_EQ(report["nodes"].size(), 2u);
  EXPECT_TRUE(report["nodes"][1]["left"]);
  EXPECT_FALSE(report["nodes"][1]["reported"]);
  EXPECT_EQ(report["workers"], 1);
  expect_nothing_left();
}

// As where both listen in the same instant, and the kernel refuses both.
TEST_F(NodesTest, WhoCouldNotHostAtFirstTriesAgain) {
  base::UniqueFd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{.sin_family = AF_INET, .sin_port = htons(29400), .sin_addr = {}, .sin_zero = {}};
  ASSERT_EQ(inet_pton(AF_INET, address_.c_str(), &place.sin_addr), 1);
  ASSERT_EQ(bind(taken.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
  for (int node = 0; node < 2; ++node) agent({"--nnodes", "2"}, "echo $RANK");
  for (const auto& job : jobs_)
    testing::wait_until([&] { return job->err().find("waiting for the agent that hosts") != std::string::npos; });
  taken = {};
  for (const auto& job : jobs_) EXPECT_EQ(job->wait(), 0) << job->err();
  EXPECT_THAT(lines(), UnorderedElementsAre("0", "1"));
}

TEST_F(NodesTest, AllStartAgainAndRanksStay) {
  const testing::ScratchFolder folder;
  const std::string script =
      "echo $NODE $RANK try $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS;"
      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit; cd " +
      folder.path() +
      "; touch $RANK; until [ -e 0 ]; do sleep 0.01; done;"
      "[ $RANK = 1 ] && kill -9 $$; sleep 1000";
  Job& a = agent({"--nnodes", "2", "--max-restarts", "2"}, script, {"NODE=a"});
  Job& b = agent({"--nnodes", "2", "--max-restarts", "2"}, script, {"NODE=b"});
  for (Job* job : {&a, &b}) {
    EXPECT_EQ(job->wait(), 0);
    EXPECT_THAT(job->err(), AllOf(HasSubstr("rank 1 failed: killed by SIGKILL"), HasSubstr("restart 1 of 2")));
  }
  const std::string first = a.out().starts_with("a 0") ? "a" : "b";
  const std::string second = first == "a" ? "b" : "a";
  EXPECT_THAT(lines(), UnorderedElementsAre(first + " 0 try 0 of 2", second + " 1 try 0 of 2", first + " 0 try 1 of 2",
                                            second + " 1 try 1 of 2"));
}

// Before and after a restart: what the ranks before it have left is not there any more.
TEST_F(NodesTest, WorkersMeetInTheAgentsStore) {
  const testing::ScratchFolder folder;
  Job make({"/bin/sh", "-c", LOCKSTEP_PROGRAM " secret new > " + folder.file("key")});
  EXPECT_EQ(make.wait(), 0) << make.err();
  const std::vector<std::string> flags{"--nnodes", "2", "--max-restarts", "1", "--secret-file", folder.file("key")};
  for (const char* workers : {"2", "1"}) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), {"-n", workers});
    agent(all, "exec " TOY_WORKER " store");
  }
  for (const auto& job : jobs_) EXPECT_EQ(job->wait(), 0) << job->err();
  const std::string rest = ": 012, new, sum 6";
  EXPECT_THAT(lines(), UnorderedElementsAre("0" + rest, "1" + rest, "2" + rest, "0" + rest, "1" + rest, "2" + rest));
  expect_nothing_left();
}

// The workers that make room for it take longer than a silence may.
TEST_F(NodesTest, WhoComesWhileAGenerationEndsWaits) {
  const auto flags = [](const std::string& hosts) {
    return std::vector<std::string>{"--nnodes",       "1:2",
                                    "--grace-period", "5",
                                    "--rdzv-conf",    hosts + ",keep_alive_interval=0.4,last_call_timeout=0.1"};
  };
  const std::string script = "[ $WORLD_SIZE = 2 ] && exit 0; trap '' TERM; echo; while :; do sleep 0.1; done";
  Job& host = agent(flags("is_host=1"), script);
  host.wait_for_lines(1);
  Job& late = agent(flags("is_host=0"), script);
  EXPECT_EQ(late.wait(), 0) << late.err();
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_THAT(late.err(), HasSubstr("lockstep: the workers of the last generation are ending"));
  expect_nothing_left();
}

TEST_F(NodesTest, ANodeIsLostAndAnotherTakesItsPlace) {
  const std::string conf = "keep_alive_interval=0.3,is_host=";
  const std::vector<std::string> flags{"--nnodes", "2", "--max-restarts", "1", "--rdzv-conf", conf + "0"};
  const std::string script =
      "echo $RANK try $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 1000";
  Job& host = agent({"--nnodes", "2", "--max-restarts", "1", "--rdzv-conf", conf + "1"}, script);
  Job& lost = agent(flags, script);
  host.wait_for_lines(1);
  lost.wait_for_lines(1);
  Job& spare = agent(flags, script);  // waits outside
  lost.signal(SIGKILL);
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_EQ(spare.wait(), 0) << spare.err();
  EXPECT_THAT(host.err(),
              AllOf(HasSubstr("lockstep: node 1 (host "), HasSubstr(") is lost: "), HasSubstr("restart 1 of 1")));
  EXPECT_EQ(spare.out(), "1 try 1\n");
  EXPECT_EQ(lost.wait(), 128 + SIGKILL);
  expect_nothing_left();
}

TEST_F(NodesTest, ALostNodeWithoutRestartsEndsTheJob) {
  Job& host = agent({"--nnodes", "2", "--rdzv-conf", "is_host=1"}, "echo; sleep 1000");
  Job& lost = agent({"--nnodes", "2", "--rdzv-conf", "is_host=0"}, "echo; sleep 1000");
  host.wait_for_lines(1);
  lost.wait_for_lines(1);
  lost.signal(SIGKILL);
  EXPECT_EQ(host.wait(), 1);
  EXPECT_THAT(host.err(), HasSubstr("is lost: "));
  expect_nothing_left();
}

TEST_F(NodesTest, WithoutTheHostingAgentEveryNodeEnds) {
  Job& host = agent({"--nnodes", "2", "--rdzv-conf", "is_host=1", "--max-restarts", "3"}, "echo; sleep 1000");
  Job& other = agent({"--nnodes", "2", "--rdzv-conf", "is_host=0", "--max-restarts", "3"}, "echo; sleep 1000");
  other.wait_for_lines(1);
  host.wait_for_lines(1);
  host.signal(SIGKILL);
  EXPECT_EQ(other.wait(), 1);
  EXPECT_THAT(other.err(),
              AllOf(HasSubstr("the hosting agent (" + address_), HasSubstr("start the same command again")));
  host.wait();
  expect_nothing_left();
}

TEST_F(NodesTest, ANewcomerIsLetInByARestartThatCostsNothing) {
  const std::string script =
      "echo $RANK of $WORLD_SIZE, $TORCHELASTIC_RESTART_COUNT; [ $WORLD_SIZE = 2 ] || sleep 1000";
  Job& host = agent({"--nnodes", "1:2", "--rdzv-conf", "is_host=1,last_call_timeout=0.01"}, script);
  host.wait_for_lines(1);
  Job& late = agent({"--nnodes", "1:2", "--rdzv-conf", "is_host=0,last_call_timeout=0.01"}, script);
  EXPECT_EQ(late.wait(), 0) << late.err();
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_THAT(lines(), UnorderedElementsAre("0 of 1, 0", "0 of 2, 0", "1 of 2, 0"));
  EXPECT_THAT(host.err(), HasSubstr("starting again with other nodes: "));
}

TEST_F(NodesTest, ANodeThatFailsAgainAndAgainIsLeftOut) {
  const std::vector<std::string> flags{"--nnodes", "1:2", "--max-restarts", "5", "--rdzv-conf"};
  const auto with = [&](const std::string& conf) {
    std::vector<std::string> all = flags;
    all.push_back("last_call_timeout=10," + conf);
    return all;
  };
  const std::string script = "[ $WORLD_SIZE = 1 ] || { [ $RANK = 1 ] && exit 9; sleep 1000; }";
  Job& host = agent(with("is_host=1"), script);
  Job& other = agent(with("is_host=0"), script);
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_EQ(other.wait(), 0) << other.err();
  EXPECT_THAT(host.err(),
              AllOf(HasSubstr("restart 3 of 5"), HasSubstr(" has failed 3 times: it is left out for 30 s")));
  EXPECT_THAT(host.err(), ::testing::Not(HasSubstr("restart 4 of 5")));
  expect_nothing_left();
}

TEST_F(NodesTest, ASignalToOneAgentEndsAll) {
  Job& a = agent({"--nnodes", "2"}, "echo; sleep 1000");
  Job& b = agent({"--nnodes", "2"}, "echo; sleep 1000");
  a.wait_for_lines(1);
  b.wait_for_lines(1);
  b.signal(SIGTERM);
  for (Job* job : {&a, &b}) {
    EXPECT_EQ(job->wait(), 128 + SIGTERM);
    EXPECT_THAT(job->err(), HasSubstr("was ended by SIGTERM"));
  }
  expect_nothing_left();
}

// Whatever the nodes have of the ranks.
TEST_F(NodesTest, OurTrainerHasTheWeightsOfOneMachine) {
  const std::string train = "exec " LOCKSTEP_PROGRAM
                            " train --dataset digits --model mlp --max-steps 20 --no-eval --logical-shards 3 --seed 5";
  const auto weights = [](const std::string& out) { return out.substr(std::min(out.rfind("weights "), out.size())); };
  Job one({LOCKSTEP_PROGRAM, "run", "-n", "3", "sh", "-c", train});
  EXPECT_EQ(one.wait(), 0) << one.err();
  Job& a = agent({"--nnodes", "2", "-n", "2"}, train);
  Job& b = agent({"--nnodes", "2", "-n", "1"}, train);
  EXPECT_EQ(a.wait(), 0) << a.err();
  EXPECT_EQ(b.wait(), 0) << b.err();
  EXPECT_THAT(weights(one.out()), ::testing::StartsWith("weights "));
  EXPECT_EQ(weights(a.out() + b.out()), weights(one.out()));
  expect_nothing_left();
}

}  // namespace
}  // namespace lockstep
