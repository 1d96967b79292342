// A worker is killed at 200 instants (100 in bfloat16), chosen at random and by phase, and each time:
//   the survivors end at once with GroupAborted that names the dead rank, never hang;
//   the segment holds exactly the state that an undisturbed run had at the committed step;
//   a new generation goes on from there to the state the undisturbed run reaches later.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <iostream>
#include <optional>
#include <random>
#include <thread>

#include "lockstep/comm/shm/shm_group.h"
#include "tests/support/small_job.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using base::Phase;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 3;
constexpr std::uint64_t kSteps = 600;  // of the undisturbed run; every kill comes earlier
constexpr std::uint64_t kLastKill = 300;
constexpr std::uint64_t kFurther = 3;  // steps that the next generation goes on
constexpr int kAbortedCode = 42;       // a survivor that saw GroupAborted for the right rank
constexpr auto kPatience = 2s;         // "at the very worst" of the architecture

struct Hash {
  char text[33];
};

// The state hash after each step, shared with forked ranks.
class History {
 public:
  History()
      : hashes_(static_cast<Hash*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~History() { munmap(hashes_, kBytes); }
  void set(std::uint64_t step, const std::string& hash) { std::strcpy(hashes_[step].text, hash.c_str()); }
  std::string at(std::uint64_t step) const { return hashes_[step].text; }

 private:
  static constexpr std::size_t kBytes = (kSteps + 1) * sizeof(Hash);
  Hash* hashes_;
};

using RankMain = std::function<int(std::shared_ptr<comm::Group>)>;

// Forks the ranks over `segment`; they die with this process.
std::array<pid_t, kRanks> start(const base::Segment& segment, const RankMain& body) {
  std::array<pid_t, kRanks> pids{};
  const std::string path = segment.path();
  for (int rank = 0; rank < kRanks; ++rank) {
    pids[std::size_t(rank)] = fork();
    if (pids[std::size_t(rank)] != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 1;
    try {
      code = body(std::make_shared<comm::ShmGroup>(base::Segment::open(path, kRanks), rank, 20s));
    } catch (const std::exception& error) {
      std::cerr << "rank " << rank << ": " << error.what() << '\n';
    }
    _exit(code);
  }
  return pids;
}

// The status of a rank that ends within kPatience; nothing (and the rank is killed) otherwise.
std::optional<int> wait_for(pid_t pid) {
  const Clock::time_point start = Clock::now();
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() - start > kPatience) {
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

// The ballast makes the flip long enough for a signal to arrive in it.
support::SmallJob job(Amp amp, std::uint64_t steps) {
  return {.shards = kRanks, .steps = steps, .optimizer = support::SmallOptimizer::adam, .ballast = 200'000, .amp = amp};
}

void record_history(Amp amp, History& history) {
  const base::Segment segment = base::Segment::create(kRanks);
  for (pid_t pid : start(segment, [&](auto group) {
         support::SmallJob undisturbed = job(amp, kSteps);
         undisturbed.after_step = [&](parallel::Engine& engine) {
           if (group->rank() == 0) history.set(engine.steps(), engine.state_hash());
         };
         run_small_job(group, undisturbed);
         return 0;
       })) {
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_TRUE(exited_with(status, 0));
  }
}

class Killer {
 public:
  // Kills at a random instant, or, when a phase is given, as soon as the victim is seen in it.
  void strike(const base::ControlPage& page, pid_t victim, int rank, std::optional<Phase> phase) {
    const base::RankWords& words = page.ranks[rank];
    const Clock::time_point deadline = Clock::now() + 5s;
    while (words.step.load() < 2 + random_() % 5 && Clock::now() < deadline) std::this_thread::yield();
    if (phase) {
      while (Phase(words.phase.load(std::memory_order_relaxed)) != *phase && words.step.load() < kLastKill &&
             Clock::now() < deadline) {
      }
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 8000));
    }
    kill(victim, SIGKILL);
  }

  unsigned pick(unsigned below) { return unsigned(random_() % below); }

 private:
  std::mt19937 random_{std::random_device{}()};
};

// One kill, all checks. Returns the phase in which the victim died.
Phase kill_once(Amp amp, Killer& killer, const History& history, std::optional<Phase> wanted) {
  const base::Segment segment = base::Segment::create(kRanks);
  const base::ControlPage& page = segment.control();
  const int victim = int(killer.pick(kRanks));
  const auto pids = start(segment, [&](auto group) {
    try {
      run_small_job(group, job(amp, kSteps));
    } catch (const GroupAborted& aborted) {
      return aborted.failure().rank == victim ? kAbortedCode : 1;
    }
    return 0;
  });
  killer.strike(page, pids[std::size_t(victim)], victim, wanted);
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::optional<int> status = wait_for(pids[std::size_t(rank)]);
    EXPECT_TRUE(status) << "rank " << rank << " hung after rank " << victim << " was killed";
    if (rank != victim) {
      EXPECT_TRUE(exited_with(status, kAbortedCode)) << "rank " << rank;
    }
  }
  const auto phase = Phase(page.ranks[victim].phase.load());

  // The next generation finds the committed state of the undisturbed run and goes on.
  const base::Commit committed = base::Commit::unpack(page.commit.load());
  EXPECT_LT(committed.step + kFurther, kSteps);
  base::next_generation(segment.control());
  for (pid_t pid : start(segment, [&](auto group) {
         support::SmallJob rest = job(amp, committed.step + kFurther);
         bool right = true;
         rest.after_step = [&](parallel::Engine& engine) {
           right = right && engine.state_hash() == history.at(engine.steps()) && engine.steps() >= committed.step;
         };
         run_small_job(group, rest);
         return right ? 0 : 3;
       }))
    EXPECT_TRUE(exited_with(wait_for(pid), 0))
        << "after a death in '" << base::to_string(phase) << "', step " << committed.step;
  return phase;
}

struct Case {
  const char* name;
  Amp amp;
  int kills;
};

class Kill : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Precisions, Kill,
                         testing::Values(Case{"Float32", Amp::none, 200}, Case{"BFloat16", Amp::bf16, 100}),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(Kill, AWorkerKilledAtAnyInstantLeavesTheCommittedState) {
  const auto [name, amp, planned] = GetParam();
  History history;
  record_history(amp, history);
  if (HasFatalFailure()) return;
  ASSERT_NE(history.at(kSteps), "");
  ASSERT_NE(history.at(kSteps), history.at(kSteps - 1));

  constexpr std::array phases{Phase::forward, Phase::gather, Phase::update, Phase::vote, Phase::flip};
  std::array<int, base::kPhases> hit{};
  Killer killer;
  const auto missing = [&] {
    for (Phase phase : phases)
      if (hit[std::size_t(phase)] == 0) return true;
    return false;
  };
  int kills = 0;
  for (; (kills < planned || missing()) && kills < 5 * planned && !HasFailure(); ++kills) {
    std::optional<Phase> wanted;
    if (kills % 2 == 1) wanted = phases[std::size_t(kills / 2) % phases.size()];
    if (kills >= planned)
      wanted = *std::find_if(phases.begin(), phases.end(), [&](Phase phase) { return hit[std::size_t(phase)] == 0; });
    ++hit[std::size_t(kill_once(amp, killer, history, wanted))];
  }
  std::cout << kills << " kills:";
  for (int phase = 0; phase < base::kPhases; ++phase)
    std::cout << ' ' << base::to_string(Phase(phase)) << ' ' << hit[std::size_t(phase)];
  std::cout << '\n';
  EXPECT_FALSE(missing()) << "some phase was never hit";
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process was left behind";
}

}  // namespace
}  // namespace lockstep
