// What a program gets from init() besides its group.

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

// A rank that mpirun started, which sets no LOCAL_WORLD_SIZE. Returns its exit code.
int rank_of_two(int rank, const std::string& job) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCKSTEP_SEGMENT",
                           "LOCKSTEP_ALLOCATOR", "MASTER_ADDR", "MASTER_PORT"})
    unsetenv(name);
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"})
    setenv(name, std::to_string(rank).c_str(), 1);
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}) setenv(name, "2", 1);
  setenv("PMIX_NAMESPACE", job.c_str(), 1);
  memory::use_caching_allocator();
  const std::size_t alone = memory::max_kept_bytes();
  const World world = init({.timeout = std::chrono::seconds(20)});
  world.group()->barrier();
  return memory::max_kept_bytes() == alone / 2 ? 0 : 3;
}

TEST(Init, SharesTheAllocatorsLimitAmongTheRanksOfTheNode) {
  const std::string job = "lockstep-test-" + std::to_string(getpid());
  pid_t ranks[2];
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank] = fork();
    if (ranks[rank] != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 1;
    try {
      code = rank_of_two(rank, job);
    } catch (const std::exception& error) {
      std::cerr << "rank " << rank << ": " << error.what() << '\n';
    }
    _exit(code);
  }
  for (const pid_t rank : ranks) {
    int status = 0;
    waitpid(rank, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

}  // namespace
}  // namespace lockstep
