// Jobs over several nodes: agents that meet on loopback addresses of their own, as they would over a network.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Job;
using ::testing::UnorderedElementsAre;

// An address that no other process uses, so every port of it is free.
std::string own_address() {
  static int next = 0;
  return "127." + std::to_string(1 + next++ % 200) + "." + std::to_string(getpid() / 250 % 250) + "." +
         std::to_string(1 + getpid() % 250);
}

class NodesTest : public ::testing::Test {
 protected:
  // An agent of the job, with flags of its own and a script.
  Job& agent(std::vector<std::string> flags, const std::string& script,
             const std::vector<std::string>& variables = {}) {
    std::vector<std::string> command{LOCKSTEP_PROGRAM,   "run", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                                     address_ + ":29400"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"sh", "-c", script});
    jobs_.push_back(std::make_unique<Job>(command, variables));
    return *jobs_.back();
  }

  // What all agents have printed.
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    for (const auto& job : jobs_)
      for (const std::string& line : testing::lines(job->out())) all.push_back(line);
    return all;
  }

  void expect_nothing_left() const {
    for (const auto& job : jobs_) EXPECT_TRUE(job->nothing_left());
  }

  const std::string address_ = own_address();
  std::vector<std::unique_ptr<Job>> jobs_;
};

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
  Job& host = agent(
      {"--nnodes", "1:2", "--max-restarts", "1", "--rdzv-conf", "is_host=1", "--report", folder.file("r")}, script);
  Job& lost = agent({"--nnodes", "1:2", "--max-restarts", "1", "--rdzv-conf", "is_host=0"}, script);
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

TEST_F(NodesTest, ANodeIsLostAndAnotherTakesItsPlace) {
  const std::vector<std::string> flags{"--nnodes", "2", "--max-restarts", "1", "--rdzv-conf", "is_host=0"};
  const std::string script =
      "echo $RANK try $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 1000";
  Job& host = agent({"--nnodes", "2", "--max-restarts", "1", "--rdzv-conf", "is_host=1"}, script);
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

TEST_F(NodesTest, WhoDoesNotFitIsRefusedInOneLine) {
  Job& host = agent({"--nnodes", "2", "--rdzv-id", "right", "--rdzv-conf", "is_host=1"}, "true");
  const std::string start = "lockstep: error: run: ";
  const auto refused = [&](std::vector<std::string> flags) {
    Job& job = agent(std::move(flags), "true");
    EXPECT_EQ(job.wait(), 2) << job.err();
    EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
    return job.err();
  };
  const std::string no_host = "is_host=0";
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-id", "wrong", "--rdzv-conf", no_host}),
              AllOf(HasSubstr(start + "--rdzv-id is 'wrong' on "), HasSubstr("and 'right' on ")));
  EXPECT_THAT(refused({"--nnodes", "1:3", "--rdzv-id", "right", "--rdzv-conf", no_host}),
              HasSubstr("--nnodes is '1:3' on "));
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-backend", "static", "--node-rank", "1", "--rdzv-id", "right"}),
              HasSubstr("--rdzv-backend is 'static' on "));
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-conf", "is_host=1"}), HasSubstr("the port is taken"));
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-endpoint", "192.0.2.1", "--insecure", "--rdzv-conf", "is_host=1"}),
              HasSubstr("192.0.2.1:29400 (is_host): the address is not one of this machine's"));
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-endpoint", "192.0.2.1"}), HasSubstr("--secret-file FILE"));
  for (const char* any : {"0.0.0.0", "::", "[::ffff:0.0.0.0]:29400"})
    EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-endpoint", any}), HasSubstr("every address of a machine"));
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-endpoint", "no.such.host.invalid"}), HasSubstr("no such host"));
  Job& right = agent({"--nnodes", "2", "--rdzv-id", "right", "--rdzv-conf", no_host}, "true");
  EXPECT_EQ(right.wait(), 0) << right.err();
  EXPECT_EQ(host.wait(), 0) << host.err();
}

TEST_F(NodesTest, AKeyLetsInThoseWhoHaveIt) {
  const testing::ScratchFolder folder;
  const auto key = [&](const std::string& name) {
    const std::string path = folder.file(name);
    Job make({"/bin/sh", "-c", "umask 0; " LOCKSTEP_PROGRAM " secret new > " + path});
    EXPECT_EQ(make.wait(), 0) << make.err();
    struct stat status {};
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    return path;
  };
  const std::string right = key("right"), wrong = key("wrong");
  const std::string script = "echo $RANK ${LOCKSTEP_SECRET_FILE:-none} ${PET_SECRET_FILE:-none}";
  const std::vector<std::string> flags{"--nnodes", "2", "--rdzv-conf", "is_host=0", "--secret-file"};
  Job& host = agent({"--nnodes", "2", "--rdzv-conf", "is_host=1"}, script, {"LOCKSTEP_SECRET_FILE=" + right});
  const auto with = [&](const std::string& file) -> Job& {
    std::vector<std::string> all = flags;
    all.push_back(file);
    return agent(all, script);
  };
  for (Job* job : {&with(wrong), &agent({"--nnodes", "2", "--rdzv-conf", "is_host=0"}, script)}) {
    EXPECT_EQ(job->wait(), 2);
    EXPECT_THAT(job->err(), AllOf(HasSubstr("does not let this one in"), HasSubstr("--secret-file")));
  }
  Job& last = with(right);
  EXPECT_EQ(last.wait(), 0) << last.err();
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_THAT(lines(), UnorderedElementsAre("0 none none", "1 none none"));

  EXPECT_EQ(chmod(right.c_str(), 0640), 0);
  const auto refused = [&](const std::string& file, const std::string& why) {
    Job& job = with(file);
    EXPECT_EQ(job.wait(), 2);
    EXPECT_THAT(job.err(), HasSubstr("--secret-file " + file + why));
  };
  refused(right, " can be read by others: chmod 600");
  refused(folder.file("none"), ": No such file or directory (lockstep secret new > FILE makes one)");
  refused(folder.path(), " is not a regular file");
  std::ofstream(wrong) << "0123";
  refused(wrong, " is not a key of 64 hexadecimal digits");
}

TEST_F(NodesTest, TheTimeIsUp) {
  Job& alone = agent({"--nnodes", "2", "--rdzv-conf", "join_timeout=0.1"}, "true");
  EXPECT_EQ(alone.wait(), 2);
  EXPECT_THAT(alone.err(), HasSubstr("error: run: the time is up (1 s): 1 of 2 nodes: "));
  Job& nobody = agent({"--nnodes", "2", "--rdzv-conf", "join_timeout=0.1,is_host=0"}, "true");
  EXPECT_EQ(nobody.wait(), 2);
  EXPECT_THAT(nobody.err(), HasSubstr("no agent hosts at " + address_ + ":29400: Connection refused"));
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
