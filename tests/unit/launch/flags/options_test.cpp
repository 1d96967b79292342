#include "lockstep/launch/flags/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/launch/flags/flags.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "[::1]"; }

const Machine kMachine{
    .host = "node7", .cores = 8, .gpus = 0, .numa_nodes = 1, .has_address = is_loopback, .python = "python3"};

using Variables = std::map<std::string, std::string>;

Options parse(const std::vector<std::string>& arguments, const Variables& variables = {},
              Dialect dialect = Dialect::run) {
  const auto get = [&](const char* name) {
    const auto found = variables.find(name);
    return found != variables.end() ? found->second.c_str() : nullptr;
  };
  return parse_options(dialect, arguments, get).options;
}

// The text that the words ask for.
std::string text_of(Dialect dialect, const std::vector<std::string>& words) {
  return parse_options(dialect, words, [](const char*) { return nullptr; }).text;
}

Plan plan_of(std::vector<std::string> flags, const Machine& machine = kMachine, const Variables& variables = {}) {
  flags.insert(flags.end(), {"--", "program"});
  return make_plan(parse(flags, variables), Dialect::run, machine);
}

// The message with which the flags are refused.
std::string refusal(const std::vector<std::string>& flags, const Machine& machine = kMachine,
                    const Variables& variables = {}) {
  try {
    plan_of(flags, machine, variables);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RunOptions, Defaults) {
  const Plan plan = plan_of({});
  EXPECT_EQ(plan.workers, 1);
  EXPECT_EQ(plan.max_restarts, 0);
  EXPECT_EQ(plan.grace, milliseconds(10'000));
  EXPECT_EQ(plan.logs.role, "default");
  EXPECT_EQ(plan.run_id, "");
  EXPECT_EQ(plan.master_addr, "127.0.0.1");
  EXPECT_EQ(plan.master_port, 0);
  EXPECT_THAT(plan.signals, ElementsAre(SIGTERM, SIGINT, SIGHUP, SIGQUIT));
  EXPECT_THAT(plan.no_restart_codes, ElementsAre());
  EXPECT_THAT(plan.command, ElementsAre("program"));
}

TEST(RunOptions, EverySpelling) {
  for (const std::vector<std::string>& spelling : std::vector<std::vector<std::string>>{
           {"-n", "2"}, {"-n2"}, {"--nproc-per-node", "2"}, {"--nproc_per_node=2"}, {"--nproc-per_node=2"}})
    EXPECT_EQ(plan_of(spelling).workers, 2) << spelling.front();
}

TEST(RunOptions, TheEnvironmentAndThenTheCommandLine) {
  const Variables variables{
      {"PET_NPROC_PER_NODE", "3"},          {"PET_MAX_RESTARTS", "5"}, {"PET_MODULE", "1"}, {"PET_STANDALONE", "0"},
      {"PET_SIGNALS_TO_HANDLE", "SIGUSR1"}, {"PET_ROLE", ""}};
  const Plan plan = plan_of({"--nproc_per_node=2"}, kMachine, variables);
  EXPECT_EQ(plan.workers, 2);
  EXPECT_EQ(plan.max_restarts, 5);
  EXPECT_THAT(plan.signals, ElementsAre(SIGUSR1));
  EXPECT_THAT(plan.command, ElementsAre("python3", "-u", "-m", "program"));
  EXPECT_EQ(plan.logs.role, "default") << "an empty variable says nothing";
}

TEST(RunOptions, AWrongVariableIsNamed) {
  EXPECT_THAT(refusal({}, kMachine, {{"PET_MAX_RESTARTS", "many"}}), HasSubstr("PET_MAX_RESTARTS 'many'"));
  EXPECT_THAT(refusal({}, kMachine, {{"PET_STANDALONE", "yes"}}), HasSubstr("PET_STANDALONE 'yes'"));
}

TEST(RunOptions, WorkerCounts) {
  const Machine gpus{.host = "h", .cores = 8, .gpus = 4, .python = "p"};
  EXPECT_EQ(plan_of({"-n", "512"}).workers, 512);
  EXPECT_EQ(plan_of({"-n", "cpu"}).workers, 8);
  EXPECT_EQ(plan_of({"-n", "auto"}).workers, 8);
  EXPECT_EQ(plan_of({"-n", "auto"}, gpus).workers, 4);
  EXPECT_EQ(plan_of({"-n", "gpu"}, gpus).workers, 4);
  EXPECT_EQ(plan_of({"-n", "cpu"}, gpus).workers, 8);
  EXPECT_THAT(refusal({"-n", "gpu"}), HasSubstr("no NVIDIA GPU"));
  EXPECT_THAT(refusal({"-n", "two"}), HasSubstr("'two' is not a number from 1 to 512, nor auto, cpu or gpu"));
  EXPECT_THAT(refusal({"-n", "0"}), HasSubstr("'0'"));
  EXPECT_THAT(refusal({"-n", "513"}), HasSubstr("'513'"));
  EXPECT_THAT(refusal({"-n", "99999999999999999999"}), HasSubstr("from 1 to 512"));
}

TEST(RunOptions, WorkersKeepToTheCoresNearTheirGpus) {
  const Machine machine{
      .host = "h", .cores = 8, .gpus = 3, .numa_nodes = 2, .gpu_cores = {{0, 1}, {4, 5}, {}}, .python = "p"};
  EXPECT_THAT(plan_of({"-n", "2", "--numa-binding", "node"}, machine).worker_cores,
              ElementsAre(ElementsAre(0, 1), ElementsAre(4, 5)));
  EXPECT_TRUE(plan_of({"-n", "2"}, machine).worker_cores.empty());
  EXPECT_THAT(refusal({"-n", "gpu", "--numa-binding", "node"}, machine), HasSubstr("of the 3 workers, local rank 2"));
}

TEST(RunOptions, OneNodeMeetsNobody) {
  EXPECT_FALSE(plan_of({"--nnodes", "1"}).nodes);
  EXPECT_FALSE(plan_of({"--nnodes=1:1", "--node-rank", "0"}).nodes);
  EXPECT_THAT(refusal({"--node-rank", "1"}), HasSubstr("--node-rank 1: the only node has rank 0; --nnodes is 1"));
  EXPECT_THAT(refusal({"--master-addr", "10.0.0.1"}), HasSubstr("--master-addr 10.0.0.1 is not this machine"));
  EXPECT_THAT(refusal({"--rdzv-endpoint", "other:29400"}), HasSubstr("--rdzv-endpoint other is not this machine"));
  EXPECT_THAT(refusal({"--rdzv-backend", "etcd"}), HasSubstr("one of static, c10d"));
  EXPECT_THAT(refusal({"--rdzv-conf", "timeout"}), HasSubstr("key=value"));
}

TEST(RunOptions, SeveralNodesByC10d) {
  const Plan plan =
      plan_of({"--nnodes=2:4", "--rdzv-backend=c10d", "--rdzv-endpoint=node0:4711", "--rdzv-id=job", "--rdzv-conf",
               "join_timeout=60,last_call_timeout=0.5,keep_alive_interval=2,keep_alive_max_attempt=3,"
               "is_host=true,close_timeout=9",
               "--local-addr=node1", "--secret-file=key"});
  ASSERT_TRUE(plan.nodes);
  const NodesSettings& nodes = *plan.nodes;
  EXPECT_EQ(to_string(nodes.limits), "2:4");
  EXPECT_FALSE(nodes.limits.fixed_ranks);
  EXPECT_EQ(nodes.limits.join_timeout, milliseconds(60'000));
  EXPECT_EQ(nodes.limits.last_call_timeout, milliseconds(500));
  EXPECT_EQ(nodes.silence(), milliseconds(6'000));
  EXPECT_EQ(nodes.is_host, true);
  EXPECT_EQ(nodes.host + " " + std::to_string(nodes.port), "node0 4711");
  EXPECT_EQ(nodes.local_addr + " " + nodes.secret_file, "node1 key");
  EXPECT_EQ(nodes.node_rank, -1);
  EXPECT_EQ(plan.run_id, "job");
}

TEST(RunOptions, SeveralNodesByTheirRanks) {
  const Plan plan = plan_of({"--nnodes=3", "--node-rank=1", "--master-addr=node0", "-n2"}, kMachine,
                            {{"LOCKSTEP_SECRET_FILE", "/key"}});
  ASSERT_TRUE(plan.nodes);
  EXPECT_TRUE(plan.nodes->limits.fixed_ranks);
  EXPECT_EQ(plan.nodes->node_rank, 1);
  EXPECT_EQ(plan.nodes->host + " " + std::to_string(plan.nodes->port), "node0 29500");
  EXPECT_EQ(plan.nodes->secret_file, "/key");
  EXPECT_EQ(plan.node.first_rank, 2);
  EXPECT_EQ(world_size(plan), 6);
  EXPECT_EQ(plan_of({"--nnodes=2", "--rdzv-endpoint=node0:1234"}).nodes->port, 1234);
  EXPECT_EQ(plan_of({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=[::1]"}).nodes->port, 29400);
}

TEST(RunOptions, WrongNodes) {
  EXPECT_THAT(refusal({"--nnodes", "2:1"}), HasSubstr("MIN:MAX"));
  EXPECT_THAT(refusal({"--nnodes", "x"}), HasSubstr("'x'"));
  EXPECT_THAT(refusal({"--nnodes", "0"}), HasSubstr("from 1 to 10000"));
  EXPECT_THAT(refusal({"--nnodes", "1:2"}), HasSubstr("--nnodes 1:2: a range needs --rdzv-backend c10d"));
  EXPECT_THAT(refusal({"--nnodes", "2", "--node-rank", "2"}),
              HasSubstr("--node-rank 2 is not one of --nnodes 2: 0 to 1"));
  EXPECT_THAT(refusal({"--nnodes", "2", "--standalone"}), HasSubstr("--standalone means one node"));
  EXPECT_THAT(refusal({"--nnodes", "2", "--rdzv-endpoint", "h:0"}), HasSubstr("'h:0' is not HOST or HOST:PORT"));
  EXPECT_THAT(refusal({"--nnodes", "2", "--rdzv-endpoint", "h:x"}), HasSubstr("'x'"));
  EXPECT_THAT(refusal({"--nnodes", "2", "--rdzv-conf", "join_timeout=0"}), HasSubstr("join_timeout=0 is not a number"));
  EXPECT_THAT(refusal({"--nnodes", "2", "--rdzv-conf", "is_host=maybe"}), HasSubstr("is not true or false"));
  EXPECT_THAT(refusal({"--nnodes", "2", "--node-rank", "1", "--rdzv-conf", "is_host=1"}),
              HasSubstr("--rdzv-conf is_host=1 with --node-rank 1: node rank 0 hosts, unless --rdzv-backend c10d"));
  EXPECT_THAT(refusal({"--nnodes", "2", "--node-rank", "0", "--rdzv-conf", "is_host=0"}),
              HasSubstr("--rdzv-conf is_host=0 with --node-rank 0"));
  EXPECT_TRUE(plan_of({"--nnodes=2", "--node-rank=1", "--rdzv-conf", "is_host=0"}).nodes);
  EXPECT_THAT(refusal({"--nnodes", "2", "--rdzv-conf", "jointimeout=3"}), HasSubstr("jointimeout: no such setting"));
}

TEST(RunOptions, MasterAddressAndPort) {
  const auto master = [](const std::vector<std::string>& flags) {
    const Plan plan = plan_of(flags);
    return plan.master_addr + " " + std::to_string(plan.master_port) + " " + plan.run_id;
  };
  EXPECT_EQ(master({"--master-addr=localhost", "--master-port=29500", "--rdzv-id=x"}), "localhost 29500 x");
  EXPECT_EQ(master({"--master-addr=node7"}), "node7 0 ");
  EXPECT_EQ(master({"--rdzv-endpoint=localhost:4711"}), "localhost 4711 ");
  EXPECT_EQ(master({"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:4711", "--rdzv-id=x"}), "localhost 0 x");
  EXPECT_EQ(master({"--rdzv-backend=c10d", "--local-addr=127.0.0.1"}), "127.0.0.1 0 ");
  EXPECT_EQ(master({"--standalone", "--rdzv-id=x", "--master-port=29500"}), "localhost 0 ");
  EXPECT_THAT(refusal({"--master-port", "65536"}), HasSubstr("'65536'"));
}

TEST(RunOptions, HowTheProgramIsStarted) {
  const auto command = [](const std::vector<std::string>& words, Dialect dialect = Dialect::run) {
    return make_plan(parse(words, {}, dialect), dialect, kMachine).command;
  };
  EXPECT_THAT(command({"train.py", "-n", "3"}), ElementsAre("python3", "-u", "train.py", "-n", "3"));
  EXPECT_THAT(command({"-m", "pkg.train", "x"}), ElementsAre("python3", "-u", "-m", "pkg.train", "x"));
  EXPECT_THAT(command({"--no-python", "train.py"}), ElementsAre("train.py"));
  EXPECT_THAT(command({"--run-path", "/a/train"}), ElementsAre("python3", "-u", "/a/train"));
  EXPECT_THAT(command({"--run-path", "--no-python", "/a/train"}), ElementsAre("python3", "-u", "/a/train"));
  EXPECT_THAT(command({"train.py", "x"}, Dialect::launch),
              ElementsAre("python3", "-u", "train.py", "--local-rank=${local_rank}", "x"));
  EXPECT_THAT(command({"--use_env", "train.py", "x"}, Dialect::launch), ElementsAre("python3", "-u", "train.py", "x"));
  EXPECT_THAT(command({"--use-env", "--no-use-env", "a", "x"}, Dialect::launch),
              ElementsAre("a", "--local-rank=${local_rank}", "x"));
  EXPECT_THROW(command({"-m", "--no-python", "x"}), UsageError);
  EXPECT_THROW(command({"--no-python", "x"}, Dialect::launch), UsageError);
  EXPECT_THROW(command({"--use-env", "x"}), UsageError) << "torchrun has no such flag";
  EXPECT_THROW(make_plan(parse({"x.py"}), Dialect::run, {.cores = 1}), UsageError) << "no Python";
}

TEST(RunOptions, FlagsThatChangeNothingAreStillChecked) {
  EXPECT_EQ(refusal({"--monitor-interval", "0.5", "--start-method", "fork", "--event-log-handler", "null"}),
            "accepted");
  EXPECT_THAT(refusal({"--monitor-interval", "soon"}), HasSubstr("'soon'"));
  EXPECT_THAT(refusal({"--start-method", "thread"}), HasSubstr("one of spawn, fork, forkserver"));
  EXPECT_THAT(refusal({"--event-log-handler", "console"}), HasSubstr("one of null"));
  EXPECT_THAT(refusal({"--logs-specs", "mine"}), HasSubstr("Python entry points"));
}

TEST(RunOptions, RanksThatDoNotExistAreRefused) {
  EXPECT_EQ(refusal({"-n", "2", "--local-ranks-filter", "0,7"}),
            "run: --local-ranks-filter: there is no local rank 7; the job has 0 to 1");
  EXPECT_EQ(refusal({"-n", "2", "-r", "9:3"}), "run: --redirects: there is no local rank 9; the job has 0 to 1");
  EXPECT_EQ(refusal({"-n", "2", "-t", "0:1,2:1"}), "run: --tee: there is no local rank 2; the job has 0 to 1");
  EXPECT_EQ(refusal({"--tee", "1:1"}), "run: --tee: there is no local rank 1; the job has one, 0");
  EXPECT_EQ(refusal({"-n", "2", "-r", "1:3", "-t", "0:1,1:2", "--local-ranks-filter", "1"}), "accepted");
}

TEST(RunOptions, NumaBindingSaysWhyNot) {
  EXPECT_THAT(refusal({"--numa-binding", "node"}), HasSubstr("one NUMA node"));
  EXPECT_THAT(refusal({"--numa-binding", "socket"}, {.cores = 8, .numa_nodes = 2}),
              HasSubstr("not yet; node is there"));
  EXPECT_THAT(refusal({"--numa-binding", "node"}, {.cores = 8, .numa_nodes = 2}),
              HasSubstr("of the 1 workers, local rank 0 has no GPU whose NUMA node the kernel tells"));
  EXPECT_THAT(refusal({"--numa-binding", "best"}), HasSubstr("one of node, socket, exclusive, core-complex"));
}

TEST(RunOptions, GracePeriods) {
  EXPECT_EQ(plan_of({"--grace-period", "0.25"}).grace, milliseconds(250));
  for (const char* wrong : {"-1", "nan", "inf", "1e9", "", "2s"})
    EXPECT_THAT(refusal({"--grace-period", wrong}), HasSubstr("seconds from 0")) << wrong;
}

TEST(RunOptions, WrongWordsNameTheNearestFlag) {
  EXPECT_THAT(refusal({"--nproc-per-nod", "2"}), HasSubstr("did you mean '--nproc-per-node'?"));
  EXPECT_THAT(refusal({"--standalone=yes"}), HasSubstr("takes no value"));
  EXPECT_THROW(parse({"-n"}), UsageError);
  EXPECT_THROW(parse({}), UsageError);
  EXPECT_THROW(parse({"--"}), UsageError);
}

TEST(RunOptions, HelpNamesEveryFlag) {
  for (const Dialect dialect : {Dialect::run, Dialect::launch}) {
    Options options;
    for (const std::string& name : flags::names_of(table_of(dialect, options)))
      EXPECT_THAT(text_of(dialect, {"--help"}), HasSubstr(name));
  }
  EXPECT_THAT(text_of(Dialect::run, {"-n", "2", "--help", "--nonsense"}), Not(HasSubstr("--use-env")));
  EXPECT_EQ(text_of(Dialect::run, {"program", "--help"}), "");
}

TEST(RunOptions, TheCommandLineWinsOverTheEnvironmentOfItsOpposite) {
  const Variables variables{{"PET_USE_ENV", "1"}};
  EXPECT_TRUE(parse({"x"}, variables, Dialect::launch).use_env);
  EXPECT_FALSE(parse({"--no-use-env", "x"}, variables, Dialect::launch).use_env);
}

TEST(RunOptions, WhatTheCommandLineGivesIsNotLookedForInTheEnvironment) {
  EXPECT_EQ(plan_of({"--max-restarts", "3"}, kMachine, {{"PET_MAX_RESTARTS", "many"}}).max_restarts, 3);
}

TEST(RunOptions, TheLastOfSeveralCountsAsUnderTorchrun) {
  EXPECT_EQ(plan_of({"-n", "2", "--nproc-per-node", "3"}).workers, 3);
}

TEST(Signals, ByName) {
  EXPECT_THAT(parse_signals("s", "SIGTERM, USR1,SIGINT"), ElementsAre(SIGTERM, SIGUSR1, SIGINT));
  EXPECT_THAT(parse_signals("s", ""), ElementsAre());
  for (const char* wrong : {"SIGKILL", "STOP", "SIGCHLD", "SIGFOO", "15"})
    EXPECT_THROW(parse_signals("s", wrong), UsageError) << wrong;
}

TEST(Codes, NumbersRangesSignals) {
  EXPECT_THAT(parse_codes("c", "2, 64-66,SIGSEGV,139"), ElementsAre(2, 64, 65, 66, 139, 139));
  EXPECT_THAT(parse_codes("c", ""), ElementsAre());
  for (const char* wrong : {"0", "256", "5-3", "-3", "x", "3-", "3-400"})
    EXPECT_THROW(parse_codes("c", wrong), UsageError) << wrong;
}

}  // namespace
}  // namespace lockstep::launch
