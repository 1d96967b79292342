// What backend mpi decides before it calls MPI.

#include "lockstep/comm/network/mpi_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/usage_error.h"

namespace lockstep::comm {
namespace {

using lockstep::testing::usage_error;
using ::testing::HasSubstr;

rendezvous::GetEnv only(const std::map<std::string, std::string>& variables) {
  return [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

std::string chosen(const std::map<std::string, std::string>& variables) { return mpi_of(only(variables)); }

TEST(MpiSession, IsThatOfTheLauncher) {
  EXPECT_EQ(chosen({{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "0"}}), "openmpi");
  EXPECT_EQ(chosen({{"PMIX_RANK", "0"}, {"SLURM_PROCID", "0"}}), "openmpi");
  EXPECT_EQ(chosen({{"PMI_RANK", "0"}}), "mpich");
  EXPECT_EQ(chosen({{"PMI_RANK", "0"}, {"LOCKSTEP_MPI", "openmpi"}}), "openmpi");
  EXPECT_THAT(usage_error([] { (void)chosen({}); }), HasSubstr("whose MPI has started this process is not known"));
  EXPECT_EQ(usage_error([] {
              (void)chosen({{"LOCKSTEP_MPI", "lam"}});
            }),
            "environment: LOCKSTEP_MPI=lam is neither openmpi nor mpich");
}

TEST(MpiSession, AsksForCallsOfAnyThread) {
  EXPECT_NO_THROW(check_thread_level("MPICH", LOCKSTEP_MPI_SERIALIZED));
  EXPECT_NO_THROW(check_thread_level("MPICH", LOCKSTEP_MPI_MULTIPLE));
  EXPECT_THAT(usage_error([] { check_thread_level("MPICH", LOCKSTEP_MPI_FUNNELED); }),
              HasSubstr("MPICH was initialised with MPI_THREAD_FUNNELED; needed is MPI_THREAD_SERIALIZED"));
  EXPECT_THAT(usage_error([] { check_thread_level("MPICH", LOCKSTEP_MPI_SINGLE); }), HasSubstr("MPI_THREAD_SINGLE"));
}

TEST(MpiSession, AsksForTheLaunchersOrder) {
  const rendezvous::Place place{.rank = 1, .world_size = 2, .launcher = "srun"};
  EXPECT_NO_THROW(check_mpi_place("Open MPI", 1, 2, place));
  EXPECT_EQ(usage_error([&] { check_mpi_place("Open MPI", 0, 1, place); }),
            "init: backend 'mpi': Open MPI says that this is rank 0 of 1, srun that it is rank 1 of 2: srun needs "
            "--mpi=pmix or --mpi=pmi2, as this MPI was built");
  EXPECT_THAT(usage_error([&] { check_mpi_place("Open MPI", 0, 2, place); }), HasSubstr("this is rank 0 of 2"));
}

}  // namespace
}  // namespace lockstep::comm
