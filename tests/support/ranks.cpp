#include "tests/support/ranks.h"

#include <ATen/Parallel.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "lockstep/base/unique_fd.h"
#include "lockstep/c10d.h"
#include "lockstep/comm/network/gloo_streams.h"
#include "lockstep/comm/network/network_group.h"
#include "lockstep/comm/network/tcp_mesh.h"
#include "lockstep/comm/shm/shm_group.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/comm/traced_group.h"
#include "lockstep/comm/world.h"
#include "lockstep/testing.h"
#include "python/backend.h"
#include "tests/support/listener.h"
#include "tests/support/sanitizers.h"
#include "tests/support/scratch_folder.h"

// What ThreadSanitizer takes for races of ranks that are threads, since it sees libtorch's locks but neither its
// atomics nor how a local variable that is static is made: the end of a copy that autocast keeps for all threads and
// any of them drops, the last that used it long before; and oneDNN's cache of primitives, which ranks share (bfloat16
// where the processor has it).
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:lockstep::parallel::ForwardScope::~ForwardScope\n"
         "race:dnnl::impl::";
}

namespace lockstep::support {
namespace {

// More than any case takes, and less than ctest allows a program.
constexpr std::chrono::minutes kMostTime{4};

constexpr std::chrono::minutes kLonger{1};

void run_rank(const base::Segment& segment, int rank, const RankBody& body, RankOptions options) {
  try {
    body(std::make_shared<comm::ShmGroup>(base::Segment::open(segment.path(), segment.control().local_world), rank,
                                          options.timeout));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.what();
  }
}

// The body with a group that has a trace, a record and no planned failure.
RankBody wrapped(const RankBody& body, const std::string& traces) {
  return [body, traces](const std::shared_ptr<comm::Group>& group) {
    const auto failing = std::make_shared<comm::FailingGroup>(group, comm::PlannedFailure{.at = 0});
    body(comm::traced(std::make_shared<comm::RecordingGroup>(failing), {}, {.folder = traces}));
  };
}

void run_threads(int ranks, const RankBody& body, RankOptions options) {
  const base::Segment segment = base::Segment::create(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { run_rank(segment, rank, body, options); });
  for (std::thread& thread : threads) thread.join();
}

// How a child ended; who has not by the deadline is killed: it may have been stopped for good.
int status_of(pid_t child, std::chrono::steady_clock::time_point deadline) {
  const base::UniqueFd process(int(syscall(SYS_pidfd_open, child, 0)));
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  pollfd polled{.fd = process.get(), .events = POLLIN, .revents = 0};
  if (poll(&polled, 1, int(std::max<std::int64_t>(0, left.count()))) == 0) {
    ADD_FAILURE() << "a rank did not end";
    kill(child, SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// Forks them, all of which end with this process; returns when they have.
void run_forked(int ranks, const std::function<std::shared_ptr<comm::Group>(int rank)>& join, const RankBody& body,
                RankOptions options) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      // libtorch makes its pool of threads anew in a child, at the first call, which autograd's threads of several
      // devices would make at the same time: some then find none ("Invalid thread pool!").
      at::set_num_threads(at::get_num_threads());
      try {
        body(join(rank));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
      fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  const auto deadline = std::chrono::steady_clock::now() + kMostTime;
  for (int rank = 0; rank < ranks; ++rank) {
    const int status = status_of(children[std::size_t(rank)], deadline);
    if (WIFSIGNALED(status) && WTERMSIG(status) == options.allowed_signal) continue;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << " ended with status " << status;
  }
}

void run_processes(int ranks, const RankBody& body, RankOptions options) {
  const base::Segment segment = base::Segment::create(ranks);
  const std::string path = segment.path();
  run_forked(
      ranks,
      [&](int rank) {
        return std::make_shared<comm::ShmGroup>(base::Segment::open(path, ranks), rank, options.timeout);
      },
      body, options);
}

// In a test each, one after the other, all ranks at the same time.
void run_rank_of_mpi(int ranks, const RankBody& body, RankOptions options) {
  const comm::World world = comm::init({.backend = "mpi", .timeout = options.timeout, .idle_cores_hint = false});
  ASSERT_EQ(world.size(), ranks);
  try {
    world.barrier();  // nobody ends the group while others are still joining it
    body(world.group());
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << world.rank() << ": " << error.what();
  }
}

// A group of shared memory as a backend of torch.distributed, and that as a group. The inner one has more time, so it
// is the outer one that tells who is late.
void run_round_trip(int ranks, const RankBody& body, RankOptions options) {
  const base::Segment segment = base::Segment::create(ranks);
  const lockstep::testing::ScratchFolder folder;
  run_forked(
      ranks,
      [&](int rank) {
        setenv("LOCKSTEP_SOCKET_IFNAME", "lo", 1);
        const auto inner = std::make_shared<comm::ShmGroup>(base::Segment::open(segment.path(), ranks), rank,
                                                            options.timeout + kLonger);
        const auto store = c10::make_intrusive<c10d::FileStore>(folder.file("store"), ranks);
        return comm::over_backend(c10::make_intrusive<python::Backend>(inner, ""), *store,
                                  {.timeout = options.timeout});
      },
      body, options);
}

std::vector<int> in_pairs(int ranks) {
  std::vector<int> per_node(std::size_t(ranks / 2), 2);
  if (ranks % 2 != 0) per_node.push_back(1);
  return per_node;
}

// An address that no other process uses, so no connection of another test takes the port between the choice and the
// meeting.
std::string own_address(pid_t test) {
  return "127." + std::to_string(2 + test / 62'500 % 250) + "." + std::to_string(test / 250 % 250) + "." +
         std::to_string(1 + test % 250);
}

}  // namespace

const char* to_string(RankKind kind) {
  const char* names[] = {"single", "threads", "processes", "wrapped", "nodes", "mpi", "hierarchical", "gloo", "c10d"};
  return names[int(kind)];
}

RankOptions over_gloo(RankOptions options) {
  options.streams = [timeout = options.timeout](comm::Mesh& mesh) { return comm::gloo_streams(mesh, timeout, [] {}); };
  return options;
}

int free_port() { return lockstep::testing::Listener().port(); }

std::shared_ptr<comm::Group> join_nodes(base::Segment segment, const std::vector<int>& ranks_per_node, int node,
                                        int local_rank, int port, const RankOptions& options) {
  const auto begin = ranks_per_node.begin();
  const int first = std::accumulate(begin, begin + node, 0);
  auto group = std::make_shared<comm::ShmGroup>(std::move(segment), local_rank, options.timeout);
  return comm::join_network({.rank = first + local_rank,
                             .world = std::accumulate(begin, ranks_per_node.end(), 0),
                             .local_rank = local_rank,
                             .local_world = ranks_per_node[std::size_t(node)],
                             .host = own_address(getppid()),
                             .port = port,
                             .key = "test",
                             .timeout = options.timeout},
                            std::move(group), options.streams, options.group);
}

void run_nodes(const std::vector<int>& ranks_per_node, const RankBody& body, RankOptions options) {
  std::vector<base::Segment> segments;
  std::vector<std::pair<int, int>> places;  // node and local rank
  for (std::size_t node = 0; node < ranks_per_node.size(); ++node) {
    segments.push_back(base::Segment::create(ranks_per_node[node]));
    for (int local = 0; local < ranks_per_node[node]; ++local) places.emplace_back(node, local);
  }
  const int port = free_port();
  run_forked(
      int(places.size()),
      [&](int rank) {
        const auto [node, local] = places[std::size_t(rank)];
        const base::Segment& segment = segments[std::size_t(node)];
        return join_nodes(base::Segment::open(segment.path(), segment.control().local_world), ranks_per_node, node,
                          local, port, options);
      },
      body, options);
}

void run_ranks(RankKind kind, int ranks, const RankBody& body, RankOptions options) {
  switch (kind) {
    case RankKind::single:
      return body(std::make_shared<comm::SingleGroup>());
    case RankKind::threads:
      return run_threads(ranks, body, options);
    case RankKind::processes:
      return run_processes(ranks, body, options);
    case RankKind::wrapped: {
      const lockstep::testing::ScratchFolder traces;
      return run_threads(ranks, wrapped(body, traces.path()), options);
    }
    case RankKind::nodes:
      return run_nodes(std::vector<int>(std::size_t(ranks), 1), body, options);
    case RankKind::mpi:
      return run_rank_of_mpi(ranks, body, options);
    case RankKind::hierarchical:
      options.group = comm::hierarchical_group;
      return run_nodes(in_pairs(ranks), body, options);
    case RankKind::gloo:
      return run_nodes(std::vector<int>(std::size_t(ranks), 1), body, over_gloo(options));
    case RankKind::c10d:
      return run_round_trip(ranks, body, options);
  }
}

void at_once(const std::vector<std::function<void()>>& waits) {
  if (kSanitizer) {
    for (const std::function<void()>& wait : waits) wait();
    return;
  }
  constexpr std::size_t kAtOnce = 4;
  for (std::size_t begin = 0; begin < waits.size(); begin += kAtOnce) {
    const std::size_t end = std::min(begin + kAtOnce, waits.size());
    std::vector<pid_t> children;
    fflush(nullptr);  // or each child would say again what waits there
    for (std::size_t number = begin; number < end; ++number) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        try {
          waits[number]();
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
        fflush(nullptr);
        _exit(::testing::Test::HasFailure() ? 1 : 0);
      }
      children.push_back(child);
    }
    for (std::size_t i = 0; i < children.size(); ++i) {
      int status = 0;
      waitpid(children[i], &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "number " << begin + i << " has failed, as it says";
    }
  }
}

}  // namespace lockstep::support
