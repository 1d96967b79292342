// A worker is killed at 30 instants (LOCKSTEP_KILLS: more), for each number of ranks and precision: at random, when it
// is seen in a phase, and so many instructions after it has entered one. Each time:
//   the survivors end at once with GroupAborted that names the dead rank, never hang;
//   the segment holds exactly the state that an undisturbed run had at the committed step;
//   a new generation goes on from there to the state the undisturbed run reaches later.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <iostream>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "lockstep/base/generation.h"
#include "lockstep/state/pin.h"
#include "tests/support/ambush.h"
#include "tests/support/device/sim_device.h"
#include "tests/support/disturbed_job.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using base::Phase;
using support::disturbed_job;
using support::exited_with;
using support::goes_on;
using support::History;
using support::kAbortedCode;
using support::start_ranks;
using support::wait_for;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kFurther = 3;  // steps that the next generation goes on
constexpr std::uint64_t kSlack = 12;   // steps after which a victim waits for a blow that is late

// Rank 0 alone comes to the last one, where somebody holds states.
constexpr std::array kPhases{Phase::forward, Phase::gather, Phase::update, Phase::vote, Phase::flip, Phase::pinned};

// When and how a worker dies, after `step`.
struct Blow {
  std::uint64_t step = 1;
  std::optional<Phase> phase;          // where it is seen from outside; nothing: wherever it is
  std::chrono::microseconds delay{0};  // before the look
  support::Ambush ambush;              // where it kills itself instead

  bool is_in(Phase wanted) const { return phase == wanted || (ambush.signal != 0 && ambush.phase == wanted); }
};

// The worker's part.
void lie_in_wait(const Blow& blow, parallel::Engine& engine) {
  if (blow.ambush.signal != 0 && engine.steps() == blow.step)
    support::lay(blow.ambush, engine.group().node().member.words());
  while (engine.steps() == blow.step + kSlack) pause();
}

// Everybody else's.
void strike(const Blow& blow, const base::ControlPage& page, pid_t victim, int rank) {
  if (blow.ambush.signal != 0) return;
  const base::RankWords& words = page.ranks[rank];
  const Clock::time_point deadline = Clock::now() + 5s;
  while (words.step.load() <= blow.step && Clock::now() < deadline) std::this_thread::yield();
  std::this_thread::sleep_for(blow.delay);
  while (blow.phase && Phase(words.phase.load(std::memory_order_relaxed)) != *blow.phase &&
         words.step.load(std::memory_order_relaxed) < blow.step + kSlack && Clock::now() < deadline) {
  }
  kill(victim, SIGKILL);
}

class Blows {
 public:
  Blows(std::uint64_t last_step, std::span<const Phase> phases) : last_step_(last_step), phases_(phases) {}

  // The three ways in turn, each with the phases in turn.
  Blow next() {
    const Phase phase = phases_[std::size_t(count_ / 3) % phases_.size()];
    switch (count_++ % 3) {
      case 0:
        return {.step = step(), .delay = std::chrono::microseconds(random_() % 8000)};
      case 1:
        return {.step = step(), .phase = phase};
      default:
        return in(phase);
    }
  }
  // Most phases of a rank that is alone are a hundred instructions long.
  Blow in(Phase phase) {
    const unsigned instructions = unsigned(random_() % (1u << (random_() % 10)));
    return {.step = step(), .ambush = {.phase = phase, .instructions = instructions, .signal = SIGKILL}};
  }
  int victim(int ranks) { return int(random_() % unsigned(ranks)); }

 private:
  std::uint64_t step() { return 1 + random_() % last_step_; }

  std::mt19937 random_{std::random_device{}()};
  const std::uint64_t last_step_;
  const std::span<const Phase> phases_;
  int count_ = 0;
};

enum class Kind {
  plain,
  on_device,  ///< a stand-in whose states are the CPU's, where the next generation goes on
  holdable    ///< with a third buffer, and rank 0 holds states, so that each third step waits
};

std::span<const Phase> phases_of(Kind kind) {
  return std::span(kPhases).first(kind == Kind::holdable ? kPhases.size() : kPhases.size() - 1);
}

// Holds the states of two steps, until the one behind the third has waited for them for a while.
class Holder {
 public:
  Holder(const base::Segment& segment, const base::RankWords& words) : segment_(segment), words_(words) {}

  void after(std::uint64_t step) {
    if (step % 3 != 0) {
      release_ = std::jthread();  // waits for the one before
      held_.emplace_back(segment_);
    } else if (held_.size() == 2) {
      release_ = std::jthread([this](const std::stop_token& stop) {
        while (!stop.stop_requested() && Phase(words_.phase.load()) != Phase::pinned)
          std::this_thread::sleep_for(100us);
        std::this_thread::sleep_for(3ms);
        held_.clear();
      });
    }
  }

 private:
  const base::Segment& segment_;
  const base::RankWords& words_;
  std::vector<state::Pin> held_;
  std::jthread release_;
};

// One kill of a job that begins at `begin`, all checks of the survivors. Returns the phase in which the victim died.
Phase kill_once(const base::Segment& segment, Amp amp, Blow blow, int victim, std::uint64_t begin = 0,
                Kind kind = Kind::plain) {
  blow.step += begin;
  const base::ControlPage& page = segment.control();
  const auto pids = start_ranks(segment, [&](auto group) {
    support::SmallJob job = disturbed_job(amp, 1'000'000);
    if (kind == Kind::on_device) {
      testing::sim::install();
      job.device = testing::sim::device();
    }
    job.holdable = kind == Kind::holdable;
    std::optional<Holder> holder;
    if (job.holdable && group->rank() == 0) holder.emplace(segment, group->node().member.words());
    job.after_step = [&](parallel::Engine& engine) {
      if (holder) holder->after(engine.steps());
      if (group->rank() == victim) lie_in_wait(blow, engine);
    };
    try {
      run_small_job(group, job);
    } catch (const GroupAborted& aborted) {
      return aborted.failure().rank == victim ? kAbortedCode : 1;
    }
    return 0;
  });
  strike(blow, page, pids[std::size_t(victim)], victim);
  for (int rank = 0; rank < int(pids.size()); ++rank) {
    const std::optional<int> status = wait_for(pids[std::size_t(rank)]);
    EXPECT_TRUE(status) << "rank " << rank << " hung after rank " << victim << " was killed";
    if (rank == victim) {
      EXPECT_TRUE(status && WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL);
    } else {
      EXPECT_TRUE(exited_with(status, kAbortedCode)) << "rank " << rank;
    }
  }
  return Phase(page.ranks[victim].phase.load());
}

base::Commit committed_in(const base::Segment& segment) {
  return base::committed(segment.control().regions[0]).value_or(base::Commit{});
}

struct Case {
  int ranks;
  const char* what;
  Amp amp;
  Kind kind = Kind::plain;
};

class Kill : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    Cells, Kill,
    testing::Values(Case{1, "Float32", Amp::none}, Case{1, "BFloat16", Amp::bf16}, Case{2, "Float32", Amp::none},
                    Case{2, "BFloat16", Amp::bf16}, Case{3, "Float32", Amp::none}, Case{3, "BFloat16", Amp::bf16},
                    Case{2, "OnADevice", Amp::none, Kind::on_device}, Case{1, "Holdable", Amp::none, Kind::holdable},
                    Case{2, "Holdable", Amp::none, Kind::holdable}),
    [](const auto& tested) { return tested.param.what + std::to_string(tested.param.ranks) + "Ranks"; });

TEST_P(Kill, AWorkerKilledAtAnyInstantLeavesTheCommittedState) {
  const auto [ranks, what, amp, kind] = GetParam();
  const int planned = support::planned_kills();
  constexpr std::uint64_t last_step = 6;
  const History history(amp, last_step + kSlack + kFurther + 1);
  std::array<int, base::kPhases> hit{};
  const std::span<const Phase> phases = phases_of(kind);
  const auto missed = [&] {
    return std::find_if(phases.begin(), phases.end(), [&](Phase phase) { return hit[std::size_t(phase)] == 0; });
  };
  Blows blows(last_step, phases);
  int kills = 0;
  for (; (kills < planned || missed() != phases.end()) && kills < 5 * planned && !HasFailure(); ++kills) {
    base::Segment segment = base::Segment::create(ranks);
    const int memory = segment.fd();
    const Blow blow = kills < planned ? blows.next() : blows.in(*missed());
    const int victim = blow.is_in(Phase::pinned) ? 0 : blows.victim(ranks);
    const Phase phase = kill_once(segment, amp, blow, victim, 0, kind);
    ++hit[std::size_t(phase)];
    segment = base::next_generation(std::move(segment), ranks);
    EXPECT_EQ(segment.fd(), memory) << "all are dead: the memory stays";
    const std::uint64_t step = committed_in(segment).step;
    ASSERT_LT(step + kFurther, history.steps());
    EXPECT_TRUE(goes_on(segment, amp, history, step, step + kFurther))
        << "after a death in '" << base::to_string(phase) << "'";
  }
  std::cout << kills << " kills:";
  for (int phase = 0; phase < base::kPhases; ++phase)
    std::cout << ' ' << base::to_string(Phase(phase)) << ' ' << hit[std::size_t(phase)];
  std::cout << '\n';
  EXPECT_TRUE(missed() == phases.end()) << "never hit: " << base::to_string(*missed());
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process was left behind";
}

// modify() is a step like any other to whoever dies in it.
TEST(KillInModify, LeavesTheCommittedState) {
  const History history(Amp::none, 10);
  for (const int ranks : {1, 2, 3}) {
    base::Segment segment = base::Segment::create(ranks);
    for (const pid_t pid : start_ranks(segment, [&](auto group) {
           support::SmallJob job = disturbed_job(Amp::none, 10);
           job.after_step = [](parallel::Engine& engine) {
             if (engine.steps() != 3) return;
             engine.modify([&] {
               for (const at::Tensor& weight : engine.module().parameters()) weight.fill_(7);
               kill(getpid(), SIGKILL);
             });
           };
           try {
             run_small_job(group, job);
           } catch (const GroupAborted&) {
             return kAbortedCode;
           }
           return 0;
         }))
      EXPECT_TRUE(wait_for(pid));
    segment = base::next_generation(std::move(segment), ranks);
    EXPECT_EQ(committed_in(segment).step, 3u);
    EXPECT_TRUE(goes_on(segment, Amp::none, history, 3, 6));
  }
}

// Rank 0 makes the edit, and dies so many instructions behind its commit, before its tensors have moved to it.
TEST(KillInModify, BehindTheCommitLeavesTheEditedState) {
  const auto edit = [](parallel::Engine& engine) {
    if (engine.steps() != 3) return;
    engine.modify([&] {
      for (const at::Tensor& weight : engine.module().parameters()) weight.mul_(0.5);
    });
  };
  for (const Amp amp : {Amp::none, Amp::bf16}) {
    const History history(amp, 7, edit);
    for (const int ranks : {1, 2}) {
      for (const unsigned instructions : {0u, 300u, 10'000u}) {
        base::Segment segment = base::Segment::create(ranks);
        const std::vector<pid_t> pids = start_ranks(segment, [&](auto group) {
          support::SmallJob job = disturbed_job(amp, 10);
          job.after_step = [&](parallel::Engine& engine) {
            if (engine.steps() == 3 && group->rank() == 0)
              support::lay({.instructions = instructions, .signal = SIGKILL},
                           group->node().segment.control().regions[0].commit);
            edit(engine);
          };
          try {
            run_small_job(group, job);
          } catch (const GroupAborted& aborted) {
            return aborted.failure().rank == 0 ? kAbortedCode : 1;
          }
          return 0;
        });
        const std::optional<int> killed = wait_for(pids[0]);
        EXPECT_TRUE(killed && WIFSIGNALED(*killed) && WTERMSIG(*killed) == SIGKILL);
        if (ranks == 2) {
          EXPECT_TRUE(exited_with(wait_for(pids[1]), kAbortedCode));
        }
        segment = base::next_generation(std::move(segment), ranks);
        EXPECT_EQ(committed_in(segment).step, 3u);
        EXPECT_TRUE(goes_on(segment, amp, history, 3, 6)) << instructions << " instructions behind the commit";
      }
    }
  }
}

class Resize : public testing::TestWithParam<Amp> {};
INSTANTIATE_TEST_SUITE_P(Precisions, Resize, testing::Values(Amp::none, Amp::bf16),
                         [](const auto& tested) { return tested.param == Amp::none ? "Float32" : "BFloat16"; });

// One job, killed again and again; each generation has another number of ranks.
TEST_P(Resize, RestartsWithMoreAndFewerRanksGoOn) {
  const int restarts = std::max(6, support::planned_kills() / 3);
  constexpr std::uint64_t last_step = 2;
  const History history(GetParam(), std::uint64_t(restarts) * (last_step + kSlack + 2) + 2);
  Blows blows(last_step, phases_of(Kind::plain));
  int ranks = 1;
  base::Segment segment = base::Segment::create(ranks);
  for (int i = 0; i < restarts && !HasFailure(); ++i) {
    kill_once(segment, GetParam(), blows.next(), blows.victim(ranks), committed_in(segment).step);
    ranks = 1 + (ranks + blows.victim(2)) % support::kDisturbedShards;  // one of the two others
    segment = base::next_generation(std::move(segment), ranks);
    const std::uint64_t step = committed_in(segment).step;
    ASSERT_LT(step + 1, history.steps());
    ASSERT_TRUE(goes_on(segment, GetParam(), history, step, step + 1)) << "restart " << i;
    segment = base::next_generation(std::move(segment), ranks);
  }
  std::cout << restarts << " restarts, " << committed_in(segment).step << " steps\n";
}

// The window that no look at a generation closes: a rank that is stopped in the middle of writing a buffer.
TEST(Fence, ARankStoppedInTheUpdateCannotTouchTheNextGeneration) {
  const History history(Amp::none, 60);
  for (const int ranks : {1, 2}) {
    base::Segment segment = base::Segment::create(ranks);
    const base::Segment watched = base::Segment::open(segment.path(), ranks);
    const Blow stop{.step = 3, .ambush = {.phase = Phase::update, .instructions = 300, .signal = SIGSTOP}};
    const std::vector<pid_t> old = start_ranks(segment, [&](auto group) {
      support::SmallJob job = disturbed_job(Amp::none, 1'000'000);
      job.after_step = [&](parallel::Engine& engine) {
        if (group->rank() == 0) lie_in_wait(stop, engine);
      };
      try {
        run_small_job(group, job);
      } catch (const GroupAborted& aborted) {
        const bool told = std::string(aborted.what()).find("attempt that is over") != std::string::npos;
        return told ? kAbortedCode : 1;
      }
      return 0;
    });
    int status = 0;
    ASSERT_EQ(waitpid(old[0], &status, WUNTRACED), old[0]);
    ASSERT_TRUE(WIFSTOPPED(status));
    for (std::size_t rank = 1; rank < old.size(); ++rank) kill(old[rank], SIGKILL);
    for (std::size_t rank = 1; rank < old.size(); ++rank) EXPECT_TRUE(wait_for(old[rank]));
    segment = base::next_generation(std::move(segment), ranks);
    EXPECT_EQ(committed_in(segment).step, 3u);
    EXPECT_TRUE(goes_on(segment, Amp::none, history, 3, 5));
    // It wakes up, writes its buffer and votes, while the others go on from where they are.
    kill(old[0], SIGCONT);
    segment = base::next_generation(std::move(segment), ranks);
    EXPECT_TRUE(goes_on(segment, Amp::none, history, 5, 30));
    EXPECT_TRUE(exited_with(wait_for(old[0]), kAbortedCode));
    EXPECT_EQ(committed_in(watched).step, 3u) << "it has committed a step of its own";
    segment = base::next_generation(std::move(segment), ranks);
    EXPECT_TRUE(goes_on(segment, Amp::none, history, 30, 33));
  }
}

}  // namespace
}  // namespace lockstep
