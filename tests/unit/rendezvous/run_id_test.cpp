#include "lockstep/rendezvous/run_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/rendezvous/variables.h"

namespace lockstep::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Processes {
  pid_t self = 30;
  pid_t parent = 20;
};

std::string id_of(const Variables& variables, Processes processes = {}) {
  const GetEnv get = reader_of(variables);
  const auto name = [](pid_t pid) { return "process " + std::to_string(pid); };
  return run_id(place_from_environment(get), get, name, processes.self, processes.parent);
}

const Variables kAloneByTorchrun = {{"RANK", "0"},
                                    {"WORLD_SIZE", "1"},
                                    {"LOCAL_RANK", "0"},
                                    {"LOCAL_WORLD_SIZE", "1"},
                                    {"MASTER_ADDR", "x"},
                                    {"MASTER_PORT", "29500"},
                                    {"TORCHELASTIC_RUN_ID", "none"}};
const Variables kAloneBySrun = {
    {"SLURM_PROCID", "0"},         {"SLURM_LOCALID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "1"},
    {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}};
const Variables kAloneByOpenMpi = {{"OMPI_COMM_WORLD_RANK", "0"},
                                   {"OMPI_COMM_WORLD_SIZE", "1"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                   {"PMIX_NAMESPACE", "2055405569"}};

// torchrun's id is `none` for every job of static rendezvous, and --rdzv-id may be given twice: the process decides.
TEST(RunId, TorchrunsAttemptsAreOneRunAndItsNextJobAnother) {
  const std::string id = id_of(kAloneByTorchrun);
  EXPECT_EQ(id_of(with(kAloneByTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "2"}, {"MASTER_PORT", "1"}}), {.self = 31}),
            id);
  EXPECT_NE(id_of(kAloneByTorchrun, {.parent = 21}), id);
  EXPECT_NE(id_of(with(kAloneByTorchrun, {{"TORCHELASTIC_RUN_ID", "x"}})), id);
}

TEST(RunId, OurAgentIsFoundBySegmentWhateverStartedTheWorker) {
  const auto ours = with(kAloneByTorchrun, {{"LOCKSTEP_SEGMENT", "/proc/9/fd/3"}});
  const std::string id = id_of(ours);
  EXPECT_THAT(id, HasSubstr("process 9"));
  EXPECT_EQ(id_of(with(ours, {{"LOCKSTEP_SEGMENT", "/proc/9/fd/7"}}), {.parent = 21}), id) << "a fresh segment";
  EXPECT_NE(id_of(with(ours, {{"LOCKSTEP_SEGMENT", "/proc/10/fd/3"}})), id);
}

TEST(RunId, AJobThatSlurmQueuesAgainIsTheSameRun) {
  const std::string id = id_of(kAloneBySrun);
  EXPECT_EQ(id_of(with(kAloneBySrun, {{"SLURM_RESTART_COUNT", "1"}}), {.self = 31, .parent = 21}), id);
  EXPECT_NE(id_of(with(kAloneBySrun, {{"SLURM_STEP_ID", "1"}})), id);
  EXPECT_NE(id_of(with(kAloneBySrun, {{"SLURM_JOB_ID", "78"}})), id);
  EXPECT_NE(id_of(with(kAloneBySrun, {{"SLURM_CLUSTER_NAME", "other"}})), id);
}

TEST(RunId, EachStartOfMpirunOrAloneIsARunOfItsOwn) {
  EXPECT_NE(id_of(kAloneByOpenMpi, {.parent = 21}), id_of(kAloneByOpenMpi));
  EXPECT_NE(id_of(with(kAloneByOpenMpi, {{"PMIX_NAMESPACE", "1"}})), id_of(kAloneByOpenMpi));
  EXPECT_NE(id_of({}, {.self = 31}), id_of({}));
}

TEST(RunId, ByHandIsTheNumberThatRankZeroHasDrawn) {
  const auto id_at = [](int rank, const char* number) {
    return run_id(
        Place{.rank = rank, .launcher = "hand", .meeting_key = number}, reader_of({}), [](pid_t) { return ""; },
        30 + rank, 20);
  };
  EXPECT_EQ(id_at(0, "ab"), "hand ab");
  EXPECT_EQ(id_at(1, "ab"), id_at(0, "ab"));
  EXPECT_NE(id_at(0, "ac"), id_at(0, "ab"));
}

TEST(RunId, IsOneLine) {
  EXPECT_THAT(id_of(with(kAloneByTorchrun, {{"TORCHELASTIC_RUN_ID", "a\nb"}})), Not(HasSubstr("\n")));
}

TEST(ProcessName, HasTheStartBehindAnyNameOfTheProgram) {
  const std::string stat = "71 (a) b (c) S 1 71 71 0 -1 4194560 1 0 0 0 3 1 0 0 20 0 1 0 99120 4096 7 0";
  EXPECT_EQ(process_name(71, stat, "1b4e-28ba\n"), "pid 71 started at 99120 of boot 1b4e-28ba");
  EXPECT_EQ(process_name(71, "", ""), "pid 71 started at ? of boot ?");
}

TEST(ProcessName, OfThisProcessIsKnown) {
  EXPECT_THAT(run_id(Place{}), AllOf(HasSubstr("alone pid " + std::to_string(::getpid())), Not(HasSubstr("?"))));
}

}  // namespace
}  // namespace lockstep::rendezvous
