#include "lockstep/rendezvous/schedulers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/error.h"
#include "tests/support/usage_error.h"
#include "tests/unit/rendezvous/variables.h"

namespace lockstep::rendezvous {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Situation {
  Variables variables;
  Variables files = {};
  std::string host_name = "here";
  std::string full_name = {};
};

std::optional<Allocation> allocation_of(const Situation& situation) {
  const auto read = [&](const std::string& path) -> std::optional<std::string> {
    const auto found = situation.files.find(path);
    return found == situation.files.end() ? std::nullopt : std::optional(found->second);
  };
  return find_allocation({reader_of(situation.variables), read, situation.host_name, situation.full_name});
}

// Everything in one line, for comparison: "SLURM task 2 nodes [a b] rank 1 tasks 1 host a".
std::string told(const Situation& situation) {
  const auto job = allocation_of(situation);
  if (!job) return "nothing";
  std::string text = job->scheduler + (job->task ? " task" : "");
  if (job->nodes) text += " " + std::to_string(job->nodes->value) + " nodes";
  if (job->names) {
    text += " [";
    for (const std::string& name : job->names->value) text += (text.ends_with('[') ? "" : " ") + name;
    text += "]";
  }
  if (job->node_rank) text += " rank " + std::to_string(job->node_rank->value);
  if (job->local_tasks) text += " tasks " + std::to_string(job->local_tasks->value);
  if (job->host) text += " host " + job->host->value;
  return text;
}

std::string told_refusal(const Situation& situation) {
  return lockstep::testing::usage_error([&] { allocation_of(situation); });
}

// As srun 22.05 sets them.
const Variables kStep = {{"SLURM_JOB_ID", "77"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "2"},
                         {"SLURM_NODEID", "2"},
                         {"SLURM_JOB_NODELIST", "n[1-5]"},
                         {"SLURM_JOB_NUM_NODES", "5"},
                         {"SLURM_NNODES", "5"},
                         {"SLURM_STEP_NODELIST", "n[2-4]"},
                         {"SLURM_STEP_NUM_NODES", "3"},
                         {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
                         {"SLURM_TASKS_PER_NODE", "4(x5)"}};
const Variables kBatch = {{"SLURM_JOB_ID", "77"},       {"SLURM_NODEID", "0"},
                          {"SLURM_PROCID", "0"},        {"SLURM_JOB_NODELIST", "n[1,3]"},
                          {"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_TASKS_PER_NODE", "4,2"}};
// As mpirun 4.1 sets them with one task per node.
const Variables kOneTaskPerNode = {{"OMPI_COMM_WORLD_RANK", "1"},
                                   {"OMPI_COMM_WORLD_SIZE", "3"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                   {"PMIX_RANK", "1"}};
const Variables kHydra = {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}};
const Variables kPod = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}};

TEST(Schedulers, WhatEachOneTells) {
  const struct {
    Situation situation;
    const char* told;
  } rows[] = {
      {{{}}, "nothing"},
      {{kStep}, "SLURM task 3 nodes [n2 n3 n4] rank 2 tasks 1 host n2"},
      {{kBatch}, "SLURM 2 nodes [n1 n3] tasks 4 host n1"},
      {{{{"SLURM_JOB_ID", "7"}, {"SLURM_NODELIST", "n9"}, {"SLURM_NNODES", "1"}}}, "SLURM 1 nodes [n9] rank 0 host n9"},
      {{{{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "2"}}}, "SLURM 2 nodes"},
      {{kOneTaskPerNode}, "Open MPI task 3 nodes rank 1 tasks 1"},
      {{with(kOneTaskPerNode, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}})}, "Open MPI task 1 nodes rank 0 tasks 3"},
      {{with(kOneTaskPerNode, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})}, "Open MPI task tasks 2"},
      {{with(kStep, kOneTaskPerNode)}, "Open MPI task 3 nodes rank 1 tasks 1"},
      {{kHydra}, "MPICH task 3 nodes rank 1 tasks 1"},
      {{with(kHydra, kBatch)}, "MPICH task 3 nodes rank 1 tasks 1"},
      {{{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}}, "MPICH task 1 nodes rank 0 tasks 1"},
      {{{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}}, "MPICH task"},
      {{with(kStep, {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}})}, "SLURM task 3 nodes [n2 n3 n4] rank 2 tasks 1 host n2"},
      {{{{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "x"}}}, "PMIx task"},
      {{{{"LSB_HOSTS", "a a here here"}}}, "LSF 2 nodes [a here] rank 1 tasks 2 host a"},
      {{{{"LSB_MCPU_HOSTS", "a 4 here 3"}, {"LSB_HOSTS", "x"}}}, "LSF 2 nodes [a here] rank 1 tasks 3 host a"},
      {{{{"LSB_DJOB_HOSTFILE", "/f"}, {"LSB_HOSTS", "x"}}, {{"/f", "here\nhere\nb !x86\n"}}},
       "LSF 2 nodes [here b] rank 0 tasks 2 host here"},
      {{{{"PBS_NODEFILE", "/f"}}, {{"/f", "b.x\r\nb.x\n\nhere.x\n"}}},
       "PBS 2 nodes [b.x here.x] rank 1 tasks 1 host b.x"},
      {{{{"PBS_NODEFILE", "/f"}}, {{"/f", "b\nc"}}}, "PBS 2 nodes [b c] host b"},
      {{{{"PBS_NODEFILE", "/f"}}, {{"/f", "b\nhere.x"}}, "here.y"}, "PBS 2 nodes [b here.x] host b"},
      {{{{"PBS_NODEFILE", "/f"}}, {{"/f", "b\nhere.x"}}, "here", "here.x"},
       "PBS 2 nodes [b here.x] rank 1 tasks 1 host b"},
      {{kPod, {}, "web-3", "web-3.job.ns.svc.cluster.local"}, "Kubernetes rank 3 host web-0.job.ns.svc.cluster.local"},
      {{kPod, {}, "web-3"}, "Kubernetes rank 3"},
      {{with(kPod, {{"JOB_COMPLETION_INDEX", "2"}}), {}, "x-2", "x-2.s"}, "Kubernetes rank 2 host x-0.s"},
      {{with(kPod, {{"JOB_COMPLETION_INDEX", "2"}}), {}, "x-2-abcde"}, "Kubernetes rank 2"},
      {{kPod, {}, "web-7d4b9c6f5-24567"}, "nothing"},
      {{kPod, {}, "web-03"}, "nothing"},
      {{kPod, {}, "web"}, "nothing"},
      {{{}, {}, "web-3"}, "nothing"},
  };
  for (const auto& row : rows) EXPECT_EQ(told(row.situation), row.told);
}

TEST(Schedulers, EachValueSaysWhereItIsFrom) {
  const Allocation job = *allocation_of({kStep});
  EXPECT_EQ(job.names->from, "SLURM_STEP_NODELIST");
  EXPECT_EQ(job.nodes->from, "SLURM_STEP_NUM_NODES");
  EXPECT_EQ(job.node_rank->from, "SLURM_NODEID");
  EXPECT_EQ(job.local_tasks->from, "SLURM_STEP_TASKS_PER_NODE");
  EXPECT_EQ(job.host->from, "SLURM_STEP_NODELIST");
}

TEST(Schedulers, BadValuesAreNamedWithWhatWouldBeRight) {
  const struct {
    Situation situation;
    const char* variable;
    const char* right;
  } rows[] = {
      {{with(kStep, {{"SLURM_NODEID", "3"}})}, "SLURM_NODEID=3", "a number from 0 to 2"},
      {{with(kStep, {{"SLURM_NODEID", "x\n"}})}, "SLURM_NODEID=x\\n", "a number from 0 to 2"},
      {{with(kStep, {{"SLURM_NODEID", ""}})}, "SLURM_NODEID", "is not set"},
      {{with(kStep, {{"SLURM_STEP_NUM_NODES", "0"}})}, "SLURM_STEP_NUM_NODES=0", "a number from 1"},
      {{with(kStep, {{"SLURM_STEP_NUM_NODES", "4"}})}, "SLURM_STEP_NUM_NODES=4", "SLURM_STEP_NODELIST names 3"},
      {{with(kStep, {{"SLURM_STEP_NODELIST", "n[2-"}})}, "SLURM_STEP_NODELIST=n[2-", "at character 5"},
      {{with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}})}, "SLURM_STEP_TASKS_PER_NODE=1(x2)", "2(x3),1"},
      {{{{"SLURM_JOB_ID", "1"}}}, "SLURM_JOB_NUM_NODES", "is not set"},
      {{with(kOneTaskPerNode, {{"OMPI_COMM_WORLD_SIZE", "1"}})}, "OMPI_COMM_WORLD_RANK=1", "a number from 0 to 0"},
      {{with(kOneTaskPerNode, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}})}, "OMPI_COMM_WORLD_LOCAL_SIZE=4", "from 1 to 3"},
      {{with(kHydra, {{"PMI_SIZE", "many"}})}, "PMI_SIZE=many", "a number from 1"},
      {{{{"LSB_MCPU_HOSTS", "a 4 b"}}}, "LSB_MCPU_HOSTS=a 4 b", "behind b (expected for example node1 4 node2 4)"},
      {{{{"LSB_MCPU_HOSTS", "a x"}}}, "LSB_MCPU_HOSTS=a x", "behind a"},
      {{{{"LSB_MCPU_HOSTS", "a 0"}}}, "LSB_MCPU_HOSTS=a 0", "behind a"},
      {{{{"LSB_HOSTS", "a b;c"}}}, "LSB_HOSTS=a b;c", "'b;c' is no host name"},
      {{{{"LSB_HOSTS", " "}}}, "LSB_HOSTS= ", "names no node"},
      {{{{"LSB_DJOB_HOSTFILE", "/f"}}}, "LSB_DJOB_HOSTFILE=/f", "cannot be read"},
      {{{{"PBS_NODEFILE", "/f"}}}, "PBS_NODEFILE=/f", "cannot be read"},
      {{{{"PBS_NODEFILE", "/f"}}, {{"/f", "\n"}}}, "PBS_NODEFILE=/f", "names no node"},
      {{{{"PBS_NODEFILE", "/f"}}, {{"/f", "a\n\x1b[2J"}}}, "PBS_NODEFILE=/f", "'\\x1b[2J' is no host name"},
      {{with(kPod, {{"JOB_COMPLETION_INDEX", "-1"}})}, "JOB_COMPLETION_INDEX=-1", "a number from 0"},
  };
  for (const auto& row : rows)
    EXPECT_THAT(told_refusal(row.situation), AllOf(HasSubstr(row.variable), HasSubstr(row.right))) << row.variable;
}

TEST(Schedulers, AListOfEveryLineIsBounded) {
  std::string lines;
  for (int i = 0; i <= 65'536; ++i) lines += "n" + std::to_string(i) + "\n";
  EXPECT_THAT(told_refusal({{{"PBS_NODEFILE", "/f"}}, {{"/f", lines}}}), HasSubstr("more than 65536 nodes"));
}

TEST(AutoNodes, AreThoseThatTheSchedulerTells) {
  const AutoNodes step = resolve_auto_nodes(allocation_of({kStep}));
  EXPECT_EQ(step.nodes, 3);
  EXPECT_EQ(step.node_rank, 2);
  EXPECT_EQ(step.host, "n2");
  EXPECT_EQ(step.because,
            "SLURM: 3 nodes (SLURM_STEP_NUM_NODES), this is node 2 (SLURM_NODEID), they meet at n2 "
            "(SLURM_STEP_NODELIST)");
  const AutoNodes pod = resolve_auto_nodes(allocation_of({kPod, {}, "web-3", "web-3.s"}), 4);
  EXPECT_EQ(pod.nodes, 4);
  EXPECT_EQ(pod.node_rank, 3);
  EXPECT_EQ(pod.host, "web-0.s");
  const AutoNodes given = resolve_auto_nodes(allocation_of({kStep}), 4);
  EXPECT_EQ(given.nodes, 4);
  EXPECT_EQ(given.node_rank, 2);
  const AutoNodes one = resolve_auto_nodes(allocation_of(
      {with(kBatch, {{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_TASKS_PER_NODE", "4"}})}));
  EXPECT_EQ(one.nodes, 1);
  EXPECT_EQ(one.node_rank, 0);
  EXPECT_EQ(one.host, "");
  EXPECT_EQ(one.because, "SLURM: 1 node (SLURM_JOB_NUM_NODES)");
}

TEST(AutoNodes, AMissingPartIsNamedWithTheFlagThatGivesIt) {
  const auto refusal_of = [](const Situation& situation, int nodes = 0) {
    return lockstep::testing::usage_error([&] { resolve_auto_nodes(allocation_of(situation), nodes); });
  };
  EXPECT_THAT(refusal_of({{}}), AllOf(HasSubstr("no scheduler"), HasSubstr("--nnodes N")));
  EXPECT_THAT(refusal_of({kBatch}),
              AllOf(HasSubstr("which of 2 nodes this is"), HasSubstr("srun --ntasks-per-node=1")));
  EXPECT_THAT(refusal_of({kPod, {}, "web-3"}),
              AllOf(HasSubstr("Kubernetes does not tell the number of nodes"), HasSubstr("--nnodes N")));
  EXPECT_THAT(refusal_of({kPod, {}, "web-3"}, 3),
              AllOf(HasSubstr("--nnodes 3: this is node 3 by the host name web-3"), HasSubstr("0 to 2")));
  EXPECT_THAT(refusal_of({{{"PMIX_RANK", "0"}}}, 2), AllOf(HasSubstr("which of 2 nodes"), HasSubstr("--node-rank R")));
  EXPECT_THAT(refusal_of({with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "4(x3)"}})}),
              AllOf(HasSubstr("4 tasks on this node (SLURM_STEP_TASKS_PER_NODE)"), HasSubstr("one per node")));
}

}  // namespace
}  // namespace lockstep::rendezvous
