#include "tests/support/disturbed_job.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <thread>

#include "lockstep/comm/shm/shm_group.h"

namespace lockstep::support {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

SmallJob disturbed_job(Amp amp, std::uint64_t steps) {
  using Group = optim::ParamGroup<optim::AdamOptions>;
  const Group biases{"*.bias", {.lr = 1e-3, .betas = optim::Betas{0.8, 0.99}}};
  return {.shards = kDisturbedShards,
          .steps = steps,
          .optimizer = maker({biases, Group{"*"}}, optim::AdamOptions{.lr = 0.01}),
          .ballast = 200'000,
          .amp = amp,
          .ema = parallel::EmaOptions{.decay = 0.9, .interval = 2},
          .all_options = true};
}

std::vector<pid_t> start_ranks(const base::Segment& segment, const RankMain& body) {
  const std::string invitation = segment.invitation();
  const int ranks = segment.control().local_world;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(fork());
    if (pids.back() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 1;
    try {
      code = body(std::make_shared<comm::ShmGroup>(base::Segment::open(invitation, ranks), rank, 20s));
    } catch (const std::exception& error) {
      std::cerr << "rank " << rank << ": " << error.what() << '\n';
    }
    _exit(code);
  }
  return pids;
}

std::optional<int> wait_for(pid_t pid) {
  const Clock::time_point deadline = Clock::now() + 60s;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      return std::nullopt;
    }
    std::this_thread::sleep_for(200us);
  }
  return status;
}

bool exited_with(const std::optional<int>& status, int code) {
  return status && WIFEXITED(*status) && WEXITSTATUS(*status) == code;
}

History::History(Amp amp, std::uint64_t steps, const std::function<void(parallel::Engine&)>& after_step)
    : steps_(steps),
      hashes_(static_cast<Hash*>(
          mmap(nullptr, (steps + 1) * sizeof(Hash), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
  const base::Segment segment = base::Segment::create(1);
  const std::vector<pid_t> pids = start_ranks(segment, [&](auto group) {
    SmallJob undisturbed = disturbed_job(amp, steps);
    undisturbed.after_step = [&](parallel::Engine& engine) {
      after_step(engine);
      std::strcpy(hashes_[engine.steps()].text, engine.state().hash().c_str());
    };
    run_small_job(group, undisturbed);
    return 0;
  });
  int status = 0;
  waitpid(pids[0], &status, 0);
  EXPECT_TRUE(exited_with(status, 0)) << "the undisturbed run failed";
  EXPECT_NE(at(steps), at(steps - 1));
}

History::~History() { munmap(hashes_, (steps_ + 1) * sizeof(Hash)); }

bool goes_on(const base::Segment& segment, Amp amp, const History& history, std::uint64_t committed,
             std::uint64_t until) {
  bool right = true;
  for (pid_t pid : start_ranks(segment, [&](auto group) {
         SmallJob rest = disturbed_job(amp, until);
         bool same = true;
         rest.after_step = [&](parallel::Engine& engine) {
           same = same && engine.state().hash() == history.at(engine.steps()) && engine.steps() >= committed;
         };
         run_small_job(group, rest);
         return same ? 0 : 3;
       })) {
    const bool ended = exited_with(wait_for(pid), 0);
    EXPECT_TRUE(ended) << "a torn state, or none to go on from, at step " << committed << " with "
                       << segment.control().local_world << " ranks";
    right = right && ended;
  }
  return right;
}

int planned_kills() {
  const char* wanted = std::getenv("LOCKSTEP_KILLS");
  return wanted == nullptr ? 30 : std::atoi(wanted);
}

}  // namespace lockstep::support
