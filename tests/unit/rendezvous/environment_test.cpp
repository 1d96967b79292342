#include "lockstep/rendezvous/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/unit/rendezvous/variables.h"

namespace lockstep::rendezvous {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Place place_of(const Variables& variables) { return place_from_environment(reader_of(variables)); }

// The message of the UsageError that these variables give.
std::string refusal(const Variables& variables) {
  try {
    const Place place = place_of(variables);
    return "accepted as " + place.launcher;
  } catch (const UsageError& error) {
    return error.what();
  }
}

const Variables kTorchrun = {{"RANK", "1"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};
// As mpirun 4.1.4 sets them.
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "2055405569"},    {"PMIX_RANK", "1"}};
const Variables kMpich = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSrun = {
    {"SLURM_PROCID", "2"},         {"SLURM_NTASKS", "3"},  {"SLURM_LOCALID", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "3"},
    {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NODEID", "0"}};

void expect_place(const Place& place, int rank, int world, const std::string& launcher) {
  EXPECT_EQ(place.rank, rank);
  EXPECT_EQ(place.local_rank, rank);
  EXPECT_EQ(place.world_size, world);
  EXPECT_EQ(place.local_world_size, world);
  EXPECT_EQ(place.launcher, launcher);
}

TEST(Environment, NothingSetIsAlone) {
  const Place place = place_of({});
  expect_place(place, 0, 1, "alone");
  EXPECT_EQ(place.job_key, "");
  EXPECT_EQ(place.segment_path, "");
}

TEST(Environment, Torchrun) {
  const Place place = place_of(kTorchrun);
  expect_place(place, 1, 4, "torchrun");
  EXPECT_EQ(place.restart_count, 2);
}

TEST(Environment, OurAgentIsKnownByItsSegment) {
  const Place place = place_of(with(kTorchrun, {{"LOCKSTEP_SEGMENT", "/proc/9/fd/3"}}));
  expect_place(place, 1, 4, "lockstep");
  EXPECT_EQ(place.segment_path, "/proc/9/fd/3");
}

TEST(Environment, EachLauncherIsRead) {
  expect_place(place_of(kOpenMpi), 1, 2, "mpirun");
  expect_place(place_of(kMpich), 0, 2, "mpirun");
  expect_place(place_of(kSrun), 2, 3, "srun");
}

TEST(Environment, MpirunInsideASlurmAllocationIsMpirun) {
  expect_place(place_of(with(kSrun, kOpenMpi)), 1, 2, "mpirun");
}

TEST(Environment, SrunsPmiVariablesAreNoMpich) {
  expect_place(place_of(with(kSrun, {{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}})), 2, 3, "srun");
}

TEST(Environment, ABatchScriptWithoutSrunIsAlone) {
  // sbatch sets SLURM_PROCID for its script, but no step.
  expect_place(place_of({{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}), 0, 1, "alone");
  expect_place(place_of({{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "4"}}), 0, 1, "alone");
}

TEST(Environment, TheJobKeyTellsJobsAndAttemptsApart) {
  const std::string key = place_of(kTorchrun).job_key;
  EXPECT_FALSE(key.empty());
  EXPECT_EQ(place_of(with(kTorchrun, {{"RANK", "2"}, {"LOCAL_RANK", "2"}})).job_key, key);
  EXPECT_NE(place_of(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "3"}})).job_key, key);
  EXPECT_NE(place_of(with(kTorchrun, {{"MASTER_PORT", "29501"}})).job_key, key);
  EXPECT_NE(place_of(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "x"}})).job_key, key);
  EXPECT_NE(place_of(with(kOpenMpi, {{"PMIX_NAMESPACE", "1"}})).job_key, place_of(kOpenMpi).job_key);
  EXPECT_NE(place_of(with(kSrun, {{"SLURM_STEP_ID", "1"}})).job_key, place_of(kSrun).job_key);
  EXPECT_NE(place_of(with(kSrun, {{"SLURM_RESTART_COUNT", "1"}})).job_key, place_of(kSrun).job_key);
}

TEST(Torchrun, VirtualLocalRanksAreToldApartByRank) {
  EXPECT_EQ(place_of(with(kTorchrun, {{"RANK", "2"}, {"LOCAL_RANK", "0"}})).local_rank, 2);
}

TEST(Environment, OpenMpiWithoutPmixNamesItsJobOtherwise) {
  Variables variables = kOpenMpi;
  variables.erase("PMIX_NAMESPACE");
  EXPECT_THAT(refusal(variables), HasSubstr("PMIX_NAMESPACE is not set"));
  variables["OMPI_MCA_ess_base_jobid"] = "5";
  EXPECT_THAT(place_of(variables).job_key, HasSubstr("5"));
}

TEST(Environment, AMissingVariableIsNamed) {
  for (const char* name : {"WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"}) {
    Variables variables = kTorchrun;
    variables.erase(name);
    EXPECT_THAT(refusal(variables), HasSubstr(std::string(name) + " is not set")) << name;
  }
}

TEST(Environment, HalfATorchrunContractIsNotAlone) {
  EXPECT_THAT(refusal({{"WORLD_SIZE", "4"}}), HasSubstr("WORLD_SIZE=4 is set but RANK is not"));
  EXPECT_THAT(refusal({{"LOCAL_RANK", "0"}}), HasSubstr("LOCAL_RANK=0 is set but RANK is not"));
}

TEST(Environment, ValuesThatAreNoNumbersOrOutOfRangeAreNamed) {
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "one"}})), AllOf(HasSubstr("RANK=one"), HasSubstr("from 0 to 3")));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "4"}})), HasSubstr("RANK=4 is not a number from 0 to 3"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "-1"}})), HasSubstr("RANK=-1"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "1x"}})), HasSubstr("RANK=1x"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"WORLD_SIZE", "0"}})), HasSubstr("WORLD_SIZE=0 is not a number from 1"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"WORLD_SIZE", "99999999999"}})), HasSubstr("WORLD_SIZE=99999999999"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "5"}})), HasSubstr("LOCAL_WORLD_SIZE=5"));
}

TEST(Environment, OfSeveralNodesTellsWhereTheyMeet) {
  const Place place = place_of(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}, {"GROUP_RANK", "1"}}));
  EXPECT_EQ(place.master_addr, "127.0.0.1");
  EXPECT_EQ(place.master_port, 29500);
  EXPECT_THAT(place.job_key, ::testing::EndsWith(" node 1")) << "two nodes may be on one machine";
  EXPECT_EQ(place.meeting_key, "none 29500") << "each agent of torchrun counts its own restarts";
  EXPECT_THAT(refusal(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}})),
              HasSubstr("MASTER_PORT=70000"));
}

TEST(Environment, OfSeveralNodesTellsTheLaunchersStore) {
  const Variables two = with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_TRUE(place_of(two).store_at_master);
  EXPECT_FALSE(place_of(with(two, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).store_at_master);
  EXPECT_EQ(place_of(two).agent_store, "");
  EXPECT_EQ(place_of(with(two, {{"LOCKSTEP_AGENT_STORE", "lockstep-7"}})).agent_store, "lockstep-7");
}

TEST(Environment, SeveralNodesMeetWhereAnyLauncherIsToldTo) {
  const Variables two = with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "2,1"}, {"SLURM_LOCALID", "0"}});
  EXPECT_THAT(refusal(two), HasSubstr("srun does not say where those of several nodes meet: give all ranks MASTER_"));
  EXPECT_THAT(refusal(with(two, {{"MASTER_ADDR", "node0"}})), HasSubstr("does not say where"));
  const Place place = place_of(with(two, {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29501"}}));
  EXPECT_EQ(place.master_addr, "node0");
  EXPECT_EQ(place.master_port, 29501);
  EXPECT_EQ(place.meeting_key, place.job_key + " 29501");
}

TEST(Environment, TheInterfaceIsOursOrElseGloos) {
  const Variables two = with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}, {"GLOO_SOCKET_IFNAME", "eth0,eth1"}});
  EXPECT_EQ(place_of(two).socket_interface, "eth0");
  EXPECT_EQ(place_of(with(two, {{"LOCKSTEP_SOCKET_IFNAME", "ib0"}})).socket_interface, "ib0");
  EXPECT_EQ(place_of(with(two, {{"GLOO_SOCKET_IFNAME", ""}})).socket_interface, "");
  EXPECT_EQ(place_of(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}})).socket_interface, "");
}

TEST(SlurmTasks, OnNode) {
  EXPECT_EQ(slurm_tasks_on_node("4", 0), 4);
  EXPECT_EQ(slurm_tasks_on_node("2(x3),1", 0), 2);
  EXPECT_EQ(slurm_tasks_on_node("2(x3),1", 2), 2);
  EXPECT_EQ(slurm_tasks_on_node("2(x3),1", 3), 1);
}

TEST(SlurmTasks, MalformedListsAreNamed) {
  for (const char* list : {"", "x", "2(x", "2(x3", "2(x3)1", "0", "2,"})
    EXPECT_THROW(slurm_tasks_on_node(list, 3), UsageError) << list;
  EXPECT_THROW(slurm_tasks_on_node("2(x3),1", 4), UsageError);
}

}  // namespace
}  // namespace lockstep::rendezvous
