#include "tests/support/ranks.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "lockstep/comm/shm/shm_group.h"
#include "lockstep/comm/single/single_group.h"

namespace lockstep::support {
namespace {

void run_rank(const base::Segment& segment, int rank, const RankBody& body, RankOptions options) {
  try {
    body(std::make_shared<comm::ShmGroup>(base::Segment::open(segment.path(), segment.control().local_world), rank,
                                          options.timeout));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.what();
  }
}

void run_threads(int ranks, const RankBody& body, RankOptions options) {
  const base::Segment segment = base::Segment::create(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { run_rank(segment, rank, body, options); });
  for (std::thread& thread : threads) thread.join();
}

void run_processes(int ranks, const RankBody& body, RankOptions options) {
  const base::Segment segment = base::Segment::create(ranks);
  const std::string path = segment.path();
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        body(std::make_shared<comm::ShmGroup>(base::Segment::open(path, ranks), rank, options.timeout));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
      fflush(nullptr);
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    waitpid(children[std::size_t(rank)], &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == options.allowed_signal) continue;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << " ended with status " << status;
  }
}

}  // namespace

const char* to_string(RankKind kind) {
  return kind == RankKind::single ? "single" : kind == RankKind::threads ? "threads" : "processes";
}

void run_ranks(RankKind kind, int ranks, const RankBody& body, RankOptions options) {
  switch (kind) {
    case RankKind::single:
      return body(std::make_shared<comm::SingleGroup>());
    case RankKind::threads:
      return run_threads(ranks, body, options);
    case RankKind::processes:
      return run_processes(ranks, body, options);
  }
}

}  // namespace lockstep::support
