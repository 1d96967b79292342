// Training on several nodes goes on with the same bits after whichever rank or node has died, left or come back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/ambush.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/machines.h"

namespace lockstep::parallel {
namespace {

using base::Phase;
using support::disturbed_job;
using support::flip_bit;
using support::hash_of;
using support::History;
using support::Machines;
using support::SmallJob;

// So small that a step goes out in several of them.
constexpr std::size_t kBytesOfAWave = 1024;

SmallJob job_in_waves(std::uint64_t until, std::size_t overlap_bytes = kBytesOfAWave) {
  SmallJob job = disturbed_job(Amp::none, until);
  job.overlap_bytes = overlap_bytes;
  return job;
}

// Goes on from what is committed to `until`; every state on the way must be the history's. Rank `victim` is ambushed
// behind its step `at`.
int go_on(const std::shared_ptr<comm::Group>& group, const History& history, std::uint64_t until,
          std::size_t overlap_bytes = kBytesOfAWave, int victim = -1, std::uint64_t at = 0,
          const support::Ambush& ambush = {}) {
  SmallJob job = job_in_waves(until, overlap_bytes);
  bool same = true;
  job.after_step = [&](Engine& engine) {
    same = same && engine.state().hash() == history.at(engine.steps());
    if (group->rank() == victim && engine.steps() == at) lay(ambush, group->node().member.words());
  };
  run_small_job(group, job);
  return same ? 0 : 3;
}

struct Kill {
  std::vector<int> nodes;  // ranks on each
  int victim = 0;
  Phase phase = Phase::forward;
  std::uint64_t behind = 1;   // the step
  unsigned instructions = 0;  // behind the beginning of the phase
  std::size_t overlap_bytes = kBytesOfAWave;
};

std::string with_commas(const std::vector<int>& all) {
  std::string text;
  for (const int each : all) text += (text.empty() ? "" : ", ") + std::to_string(each);
  return text;
}

// The others abort, and all go on with the bits of a run that nobody disturbed. What was done and found, as cells of a
// table: exit codes by rank, -1 for who was killed.
std::string kill_and_go_on(const Kill& blow, const History& history) {
  const std::string name = "rank " + std::to_string(blow.victim) + " of nodes " + ::testing::PrintToString(blow.nodes) +
                           " killed behind step " + std::to_string(blow.behind) + ", " +
                           std::to_string(blow.instructions) + " instructions behind the beginning of " +
                           std::string(to_string(blow.phase));
  Machines machines(blow.nodes);
  const support::Ambush ambush{.phase = blow.phase, .instructions = blow.instructions, .signal = SIGKILL};
  const std::vector<int> codes = machines.run([&](auto group) {
    return go_on(group, history, history.steps(), blow.overlap_bytes, blow.victim, blow.behind, ambush);
  });
  for (int rank = 0; rank < int(codes.size()); ++rank)
    EXPECT_EQ(codes[std::size_t(rank)], rank == blow.victim ? -1 : support::kAbortedCode)
        << "rank " << rank << "; " << name;
  const std::vector<int> afterwards = machines.run([&](auto group) { return go_on(group, history, history.steps()); });
  EXPECT_THAT(afterwards, ::testing::Each(0)) << name;
  return with_commas(blow.nodes) + " | " + std::to_string(blow.victim) + " | " + std::string(to_string(blow.phase)) +
         " behind step " + std::to_string(blow.behind) + ", " + std::to_string(blow.instructions) + " | " +
         (blow.overlap_bytes > 0 ? "several" : "one") + " | " + with_commas(codes) + " | " + with_commas(afterwards);
}

constexpr std::array kPhasesOfAStep{Phase::forward, Phase::gather, Phase::update, Phase::vote, Phase::flip};

// In each phase of a step, on each node.
TEST(Nodes, LoseNothingWhenARankIsKilled) {
  const History history(Amp::none, 4);
  unsigned instructions = 7;
  int of_three = 0;
  for (const Phase phase : kPhasesOfAStep)
    for (const auto& [nodes, victim] :
         std::vector<std::pair<std::vector<int>, int>>{{{2, 1}, 0}, {{2, 1}, 2}, {{1, 1, 1}, of_three++ % 3}}) {
      instructions = instructions * 5 % 4093;
      kill_and_go_on({.nodes = nodes, .victim = victim, .phase = phase, .instructions = instructions}, history);
    }
}

// LOCKSTEP_KILL_SEEDS=300 tries as many, LOCKSTEP_KILL_REPORT=FILE writes what happened as a table. What nodes send
// each other goes out behind the gather's beginning, for long.
TEST(Nodes, LoseNothingWhenARankIsKilledAtRandom) {
  const char* asked = std::getenv("LOCKSTEP_KILL_SEEDS");
  const int seeds = asked == nullptr ? 2 : std::atoi(asked);
  ASSERT_GT(seeds, 0) << "LOCKSTEP_KILL_SEEDS is a number of kills";
  const History history(Amp::none, 4);
  const std::vector<std::vector<int>> jobs{{1, 1, 1}, {2, 1}, {1, 2}};
  std::string rows =
      "| seed | ranks of each node | killed | in, and instructions behind its beginning | waves | exit codes | of "
      "those that go on, 0: with the bits of an undisturbed run in each state |\n|---|---|---|---|---|---|---|\n";
  for (int seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random{unsigned(seed)};
    const Phase phase = kPhasesOfAStep[(std::size_t(seed) + 1) % kPhasesOfAStep.size()];
    const unsigned most = phase == Phase::gather ? 32'768 : 4'096;
    Kill blow{.nodes = jobs[std::size_t(seed) % jobs.size()], .phase = phase};
    blow.victim = int(random() % 3);
    blow.behind = 1 + random() % 2;
    blow.instructions = unsigned(random() % most);
    if (seed % 2 != 0) blow.overlap_bytes = 0;
    rows += "| " + std::to_string(seed) + " | " + kill_and_go_on(blow, history) + " |\n";
  }
  if (const char* const report = std::getenv("LOCKSTEP_KILL_REPORT")) std::ofstream(report) << rows;
}

// A machine that comes back empty, or another in its place, gets the state from one that has it.
TEST(Nodes, LoseNothingWhenANodeIsLost) {
  const History history(Amp::none, 4);
  for (const std::size_t lost : {0, 1}) {
    Machines machines({1, 2});
    EXPECT_THAT(machines.run([&](auto group) { return go_on(group, history, 2); }), ::testing::Each(0));
    machines.lose(lost);
    EXPECT_THAT(machines.run([&](auto group) {
      SmallJob job = job_in_waves(4);
      std::uint64_t first = 0;
      job.after_step = [&](Engine& engine) { first = first == 0 ? engine.steps() : first; };
      return run_small_job(group, job).empty() || first != 2 ? 4 : 0;
    }),
                ::testing::Each(0))
        << lost;
    EXPECT_THAT(machines.run([&](auto group) { return go_on(group, history, 4); }), ::testing::Each(0)) << lost;
  }
}

// Whose shards come home, to memory that was made for fewer of them; and leave again, with another that comes.
TEST(Nodes, GoOnWithFewerAndWithMore) {
  const auto until = [](std::uint64_t steps) {
    return SmallJob{.shards = 48, .steps = steps, .optimizer = support::small_adam()};
  };
  const std::string two = hash_of(1, until(2)), four = hash_of(1, until(4)), six = hash_of(1, until(6));
  for (const std::size_t lost : {0, 1}) {
    Machines machines({1, 2});
    const auto go_on_to = [&](std::uint64_t steps, const std::string& hash) {
      EXPECT_THAT(machines.run([&](auto group) {
        SmallJob job = until(steps);
        std::optional<std::uint64_t> first;
        job.after_step = [&](Engine& engine) { first = first.value_or(engine.steps()); };
        const bool same = run_small_job(group, job) == hash;
        return !same ? 3 : first != steps - 2 ? 4 : 0;
      }),
                  ::testing::Each(0))
          << "node " << lost << " is lost, step " << steps;
    };
    go_on_to(2, two);
    machines.leave(lost);
    go_on_to(4, four);
    machines.come(1);
    go_on_to(6, six);
  }
}

// A machine that was left out for a while, or was a spare, comes back with what it had then.
TEST(Nodes, GoOnWithOneThatHasSatOut) {
  const History history(Amp::none, 5);
  for (const std::size_t out : {0, 1}) {
    Machines machines({1, 2});
    EXPECT_THAT(machines.run([&](auto group) { return go_on(group, history, 1); }), ::testing::Each(0));
    base::Segment kept = machines.sit_out(out);
    EXPECT_THAT(machines.run([&](auto group) { return go_on(group, history, 4); }), ::testing::Each(0));
    machines.come_back(out, std::move(kept));
    EXPECT_THAT(machines.run([&](auto group) {
      SmallJob job = job_in_waves(5);
      std::uint64_t first = 0;
      bool same = true;
      job.after_step = [&](Engine& engine) {
        first = first == 0 ? engine.steps() : first;
        same = same && engine.state().hash() == history.at(engine.steps());
      };
      run_small_job(group, job);
      return !same ? 3 : first != 4 ? 4 : 0;
    }),
                ::testing::Each(0))
        << out;
  }
}

at::Tensor tensor_of(const optim::Parameter& parameter) {
  auto* const impl = static_cast<c10::TensorImpl*>(const_cast<void*>(parameter.identity));
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(impl));
}

// In backward: before any wave has gone, which is in the second pass, and when two have.
TEST(Nodes, LoseNothingWhenARankIsKilledAmongWaves) {
  const History history(Amp::none, 4);
  for (const int victim : {0, 2})
    for (const int pass : {1, 2}) {
      SCOPED_TRACE("rank " + std::to_string(victim) + ", pass " + std::to_string(pass));
      Machines machines({2, 1});
      const std::vector<int> codes = machines.run([&](auto group) {
        SmallJob job = job_in_waves(4);
        bool same = true;
        job.after_step = [&](Engine& engine) {
          same = same && engine.state().hash() == history.at(engine.steps());
          if (group->rank() != victim || engine.steps() != 1) return;
          for (const optim::Parameter& each : engine.parameters())
            if (each.name == "bn.weight")
              tensor_of(each).register_hook([pass, calls = std::make_shared<int>(0)](const at::Tensor& gradient) {
                if (++*calls == pass) raise(SIGKILL);
                return gradient;
              });
        };
        run_small_job(group, job);
        return same ? 0 : 3;
      });
      for (int rank = 0; rank < 3; ++rank)
        EXPECT_EQ(codes[std::size_t(rank)], rank == victim ? -1 : support::kAbortedCode) << rank;
      EXPECT_THAT(machines.run([&](auto group) { return go_on(group, history, 4); }), ::testing::Each(0));
    }
}

// Of what the others do while it is out, a step behind may hide an edit, which has no number of its own.
TEST(Nodes, LoseNoEditToOneThatComesBackAStepBehind) {
  const auto until = [](std::uint64_t steps, bool edit) {
    SmallJob job{.steps = steps};
    job.after_step = [edit](Engine& engine) {
      if (edit && engine.steps() == 2)
        engine.modify([&] {
          for (const optim::Parameter& each : engine.parameters()) tensor_of(each).mul_(1.5);
        });
    };
    return job;
  };
  const std::string wanted = hash_of(1, until(5, true));
  for (const std::uint64_t alone : {2, 3})  // the last step of the one that goes on alone: the edit alone, and one more
    for (const std::size_t out : {0, 1}) {
      Machines machines({1, 1});
      const auto run = [&](const SmallJob& job) {
        EXPECT_THAT(machines.run([&](auto group) { return run_small_job(group, job).empty() ? 3 : 0; }),
                    ::testing::Each(0));
      };
      run(until(2, false));
      base::Segment kept = machines.sit_out(out);
      machines.leave(out);
      run(until(alone, true));
      machines.come_in(out, 1, std::move(kept));
      EXPECT_THAT(machines.run([&](auto group) { return run_small_job(group, until(5, false)) == wanted ? 0 : 3; }),
                  ::testing::Each(0))
          << "node " << out << " was out, the other one came to step " << alone;
    }
}

// The next start makes their states one: that of the first node.
TEST(Nodes, ThatHaveDivergedGoOnWithTheFirstOnesState) {
  const History history(Amp::none, 4);
  Machines machines({2, 1});
  EXPECT_THAT(machines.run([&](auto group) {
    SmallJob job = job_in_waves(4);
    job.verify_every = 1;
    job.after_step = [&](Engine& engine) {
      if (group->rank() == 2 && engine.steps() == 2) flip_bit(engine, "fc2.weight");
    };
    run_small_job(group, job);
    return 0;
  }),
              ::testing::Each(::testing::AnyOf(1, support::kAbortedCode)));
  EXPECT_THAT(machines.run([&](auto group) { return go_on(group, history, 4); }), ::testing::Each(0));
}

}  // namespace
}  // namespace lockstep::parallel
