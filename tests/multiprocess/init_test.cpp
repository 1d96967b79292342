// What a program gets from init() besides its group.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/network/wire.h"
#include "lockstep/lockstep.h"
#include "tests/support/usage_error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Each in a process of its own; returns when all have ended, with 0 if all is well.
void in_children(int ranks, const std::function<int(int rank)>& exit_code_of) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 1;
    try {
      code = exit_code_of(rank);
    } catch (const std::exception& error) {
      std::cerr << "rank " << rank << ": " << error.what() << '\n';
    }
    _exit(code);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

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
  in_children(2, [&](int rank) { return rank_of_two(rank, job); });
}

// As torchrun starts it on one of two nodes with two ranks each. Returns 0 when its group has two levels if it is to:
// then each node's first rank sends the sum of both to the other one's, and else each rank its numbers to all.
int rank_on_two_nodes(int rank, const std::string& address, const std::string& backend, bool has_levels) {
  for (const char* name : {"LOCKSTEP_SEGMENT", "LOCKSTEP_AGENT_STORE", "LOCKSTEP_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME",
                           "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"})
    unsetenv(name);
  const std::pair<const char*, int> numbers[] = {{"RANK", rank},           {"WORLD_SIZE", 4},
                                                 {"LOCAL_RANK", rank % 2}, {"LOCAL_WORLD_SIZE", 2},
                                                 {"GROUP_RANK", rank / 2}, {"MASTER_PORT", 29500}};
  for (const auto& [name, number] : numbers) setenv(name, std::to_string(number).c_str(), 1);
  setenv("MASTER_ADDR", address.c_str(), 1);
  const World world = init({.backend = backend, .timeout = 20s, .idle_cores_hint = false});
  const comm::Wire& wire = *world.group()->wire();
  const std::uint64_t before = wire.bytes_sent();
  const at::Tensor sum = torch::ones({10});
  world.all_reduce(sum);
  const std::uint64_t sent = wire.bytes_sent() - before, bytes = 40;
  const std::uint64_t expected = !has_levels ? 3 * bytes : rank % 2 == 0 ? bytes : 0;
  return sent == expected && sum.equal(torch::full({10}, 4.0)) ? 0 : 3;
}

TEST(Init, OverNodesWithSeveralRanksCollectivesHaveTwoLevelsUnlessMessagesAreAskedFor) {
  const std::pair<const char*, bool> backends[] = {
      {"auto", true}, {"hierarchical", true}, {"gloo", true}, {"tcp", false}};
  const std::string address =
      "127.8." + std::to_string(getpid() / 250 % 250) + "." + std::to_string(1 + getpid() % 250);
  for (const auto& backend : backends)
    in_children(4, [&](int rank) { return rank_on_two_nodes(rank, address, backend.first, backend.second); });
}

// What standard error has so far, while it is captured in a file.
std::string said_so_far() {
  std::string text(std::size_t(64) << 10, '\0');
  const ssize_t size = pread(STDERR_FILENO, text.data(), text.size(), 0);
  text.resize(std::size_t(std::max<ssize_t>(size, 0)));
  return text;
}

// An address of the loopback that no other test and no other process has.
std::string meeting_at(int net) {
  return "tcp://127." + std::to_string(net) + "." + std::to_string(getpid() / 250 % 250) + "." +
         std::to_string(1 + getpid() % 250) + ":29500";
}

// The other two do nothing before it has said that it waits; rank 0, before it has been asked where it is.
int rank_of_three(int rank, const std::string& meeting) {
  setenv("LOCKSTEP_SOCKET_IFNAME", "lo", 1);
  const World world = init({.init_method = meeting,
                            .rank = rank,
                            .world_size = 3,
                            .backend = "tcp",
                            .timeout = 60s,
                            .stall_warning = 50ms,
                            .idle_cores_hint = false});
  const at::Tensor tensor = torch::ones({1});
  if (rank == 2) {
    world.recv(tensor, 0);
    return 0;
  }
  const std::string awaited = rank == 0 ? "lockstep: rank 0 (pid " : "lockstep: rank 2 ";
  for (int looks = 0; said_so_far().find(awaited) == std::string::npos && looks < 20'000; ++looks) usleep(1'000);
  if (rank == 0) world.send(tensor, 2);
  return 0;
}

TEST(Init, AMessageThatIsMissedOverANetworkIsToldByARankWhichIsNotTheLowestOfItsNode) {
  const std::string meeting = meeting_at(5);
  ::testing::internal::CaptureStderr();
  in_children(3, [&](int rank) { return rank_of_three(rank, meeting); });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, ::testing::StartsWith("lockstep: rank 2 has waited 50 ms for rank 0 ("));
  EXPECT_THAT(said, ::testing::HasSubstr(": step 0, ")) << "which its node knows";
  EXPECT_THAT(said, ::testing::HasSubstr(" in recv(1 x Float, tag 0)\nlockstep: rank 0 (pid "));
}

// Each makes of the same two numbers what it has asked for, in a group of a group, too.
int rank_that_disagrees(int rank, const std::string& meeting, const std::string& backend, bool by_environment) {
  setenv("LOCKSTEP_SOCKET_IFNAME", "lo", 1);
  if (by_environment) setenv("LOCKSTEP_CHECK_CALLS", "0", 1);
  const World world = init({.init_method = meeting,
                            .rank = rank,
                            .world_size = 2,
                            .backend = backend,
                            .timeout = 20s,
                            .idle_cores_hint = false,
                            .check_calls = by_environment});
  for (const auto& group : {world.group(), comm::duplicate(*world.group())}) {
    const at::Tensor tensor = torch::full({2}, 1.0 + rank);
    group->all_reduce(tensor, rank == 0 ? ReduceOp::sum : ReduceOp::max);
    if (!tensor.equal(torch::full({2}, rank == 0 ? 3.0 : 2.0))) return 2;
    if (rank == 0) comm::send(*group, tensor, 1, 7);
    if (rank == 1) comm::recv(*group, tensor, 0, 8);
    if (!tensor.equal(torch::full({2}, 3.0))) return 3;
  }
  return 0;
}

TEST(Init, CallsThatDifferAreNotLookedForWhereThatIsAskedFor) {
  int host = 0;
  for (const char* const backend : {"shm", "tcp"})
    for (const bool by_environment : {false, true}) {
      const std::string meeting = "tcp://127.7." + std::to_string(getpid() / 250 % 250) + "." +
                                  std::to_string(1 + getpid() % 250) + ":" + std::to_string(29500 + host++);
      in_children(2, [&](int rank) { return rank_that_disagrees(rank, meeting, backend, by_environment); });
    }
}

TEST(Init, CallsAreComparedUnlessOptionOrEnvironmentSayNo) {
  const auto by = [](bool asked, const char* value) {
    return comm::checks_calls(asked, [value](const char*) { return value; });
  };
  for (const char* const value : {static_cast<const char*>(nullptr), "", "1"}) {
    EXPECT_TRUE(by(true, value));
    EXPECT_FALSE(by(false, value));
  }
  EXPECT_FALSE(by(true, "0"));
  EXPECT_EQ(testing::usage_error([&] { (void)by(true, "no"); }), "LOCKSTEP_CHECK_CALLS is 'no': 0 or 1 expected");
}

// Rank 1 comes when rank 0 has said that it waits.
int rank_that_reduces(int rank, const std::string& meeting) {
  setenv("LOCKSTEP_SOCKET_IFNAME", "lo", 1);
  const World world = init({.init_method = meeting,
                            .rank = rank,
                            .world_size = 3,
                            .backend = "tcp",
                            .timeout = 60s,
                            .stall_warning = 1s,  // by when rank 2 has come, on a busy machine, too
                            .idle_cores_hint = false});
  const std::string awaited = "lockstep: rank 0 has waited ";
  for (int looks = 0; rank == 1 && said_so_far().find(awaited) == std::string::npos && looks < 20'000; ++looks)
    usleep(1'000);
  world.all_reduce(torch::ones({2, 3}));
  return 0;
}

TEST(Init, ACollectiveThatIsMissedIsToldWithItsNumberAndItsShape) {
  const std::string meeting = meeting_at(6);
  ::testing::internal::CaptureStderr();
  in_children(3, [&](int rank) { return rank_that_reduces(rank, meeting); });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr(" in all_reduce(6 x Float, op 0); collective 1 of world: all_reduce(2x3 Float, op "
                                   "sum); others that have arrived: 2\n"));
}

}  // namespace
}  // namespace lockstep
