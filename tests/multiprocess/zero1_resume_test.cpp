// Checkpoints of nodes that share out the optimizer's state: those of one node, byte for byte, from which any number of
// nodes goes on, and to which a job goes back that has lost a share.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint.h"
#include "lockstep/checkpoint/store/write.h"
#include "lockstep/state/hash.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/machines.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_job.h"

namespace lockstep::checkpoint {
namespace {

using support::disturbed_job;
using support::Machines;
using support::RankKind;
using support::run_nodes;
using support::run_ranks;
using support::run_small_job;
using support::SmallJob;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::ScratchFolder;

constexpr std::uint64_t kSavedStep = 2;
constexpr std::uint64_t kLastStep = 5;

// Of a state: weights, module buffers and their averages. What the optimizer keeps shows in the next step.
std::string shown(parallel::Engine& engine) {
  return engine.weights_hash() + state::tensors_hash(engine.ema().state_dict());
}

using Body = std::function<void(const std::shared_ptr<comm::Group>&)>;

// On so many nodes with so many ranks; {1}: on one rank that has no wire.
void on_nodes(const std::vector<int>& nodes, const Body& body) {
  if (nodes.size() > 1) return run_nodes(nodes, body);
  run_ranks(RankKind::single, 1, body);
}

SmallJob zero1_job(Amp amp, std::uint64_t steps = kLastStep) {
  SmallJob job = disturbed_job(amp, steps);
  job.zero1 = true;
  return job;
}

// Whose state begins with the newest checkpoint there is, or was left in memory.
SmallJob going_on(SmallJob job, const std::string& folder) {
  job.optimizer = [maker = job.optimizer, folder](optim::Target& target) {
    resume(folder, dynamic_cast<parallel::Engine&>(target));
    return maker(target);
  };
  return job;
}

void expect_equal_files(const std::string& one, const std::string& other) {
  for (const char* const name : {kModelName, kOptimizerName, kAverageName}) {
    const std::string bytes = testing::read_file(one + "/" + name);
    EXPECT_GT(bytes.size(), 0u) << name;
    EXPECT_TRUE(testing::read_file(other + "/" + name) == bytes) << name;
  }
}

std::string step_folder(const ScratchFolder& folder) { return folder.file("step-00000002"); }

// Trains to the step that is saved, and saves there.
void save_on(const std::vector<int>& nodes, Amp amp, const ScratchFolder& folder) {
  on_nodes(nodes, [&](const std::shared_ptr<comm::Group>& group) {
    SmallJob job = zero1_job(amp, kSavedStep);
    job.after_step = [&](parallel::Engine& engine) {
      if (engine.steps() != kSavedStep) return;
      const Saved saved = save(folder.path(), engine);
      EXPECT_EQ(saved.path.empty(), group->rank() != 0);
    };
    run_small_job(group, job);
  });
}

// Of one rank, undisturbed, at each step.
std::vector<std::string> undisturbed(Amp amp) {
  std::vector<std::string> texts;
  on_nodes({1}, [&](const std::shared_ptr<comm::Group>& group) {
    SmallJob job = zero1_job(amp);
    job.after_step = [&](parallel::Engine& engine) { texts.push_back(shown(engine)); };
    run_small_job(group, job);
  });
  return texts;
}

TEST(Zero1Checkpoint, HasTheBytesOfOneNodes) {
  for (const Amp amp : {Amp::none, Amp::bf16}) {
    const ScratchFolder one;
    save_on({1}, amp, one);
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{2, 1}, {1, 1, 1}}) {
      const ScratchFolder several;
      save_on(nodes, amp, several);
      expect_equal_files(step_folder(one), step_folder(several));
    }
  }
}

TEST(Zero1Checkpoint, IsGoneOnFromByAnyNumberOfNodes) {
  const std::vector<std::string> history = undisturbed(Amp::bf16);
  for (const std::vector<int>& before : std::vector<std::vector<int>>{{1}, {1, 2}}) {
    const ScratchFolder folder;
    save_on(before, Amp::bf16, folder);
    for (const std::vector<int>& after : std::vector<std::vector<int>>{{1}, {1, 1}, {2, 1}, {1, 1, 1}})
      on_nodes(after, [&](const std::shared_ptr<comm::Group>& group) {
        SmallJob job = going_on(zero1_job(Amp::bf16), folder.path());
        job.zero1_copy = after.size() > 2;
        job.after_step = [&](parallel::Engine& engine) {
          EXPECT_GE(engine.steps(), kSavedStep);
          EXPECT_EQ(shown(engine), history.at(engine.steps()))
              << ::testing::PrintToString(before) << ", then " << ::testing::PrintToString(after);
        };
        run_small_job(group, job);
      });
  }
}

// One that is made while the next steps are, and one that comes too early behind it, on all ranks alike.
TEST(Zero1Checkpoint, IsSavedInTheBackground) {
  const ScratchFolder one, several;
  save_on({1}, Amp::none, one);
  run_nodes({2, 1}, [&](const std::shared_ptr<comm::Group>& group) {
    std::optional<BackgroundSaver> saver;
    SmallJob job = zero1_job(Amp::none);
    job.optimizer = [&, maker = job.optimizer](optim::Target& target) {
      saver.emplace(several.path(), dynamic_cast<parallel::Engine&>(target));
      return maker(target);
    };
    job.after_step = [&](parallel::Engine& engine) {
      if (engine.steps() == kSavedStep) {
        saver->save();
        saver->save();  // begins only where the first one has ended just now
      }
      if (engine.steps() < kLastStep) return;
      saver->wait_together();
      EXPECT_TRUE(saver->save());
      const Saved saved = saver->wait_together();
      if (group->rank() == 0) {
        EXPECT_EQ(saved.step, kLastStep) << saved.problem;
      }
      saver.reset();
    };
    run_small_job(group, job);
  });
  expect_equal_files(step_folder(one), step_folder(several));
}

TEST(Zero1Checkpoint, IsGoneBackToWhereAShareIsLost) {
  const std::vector<std::string> history = undisturbed(Amp::none);
  const ScratchFolder folder;
  Machines machines({1, 2});
  // Saves behind step 2; returns 0 where all states were the history's, from that of step `from` on.
  const auto go_on = [&](const std::shared_ptr<comm::Group>& group, std::uint64_t from, std::uint64_t until) {
    SmallJob job = going_on(zero1_job(Amp::none, until), folder.path());
    bool same = true;
    std::optional<std::uint64_t> first;
    job.after_step = [&](parallel::Engine& engine) {
      first = first.value_or(engine.steps());
      same = same && shown(engine) == history.at(engine.steps());
      if (engine.steps() == kSavedStep) save(folder.path(), engine);
    };
    run_small_job(group, job);
    return !same ? 3 : first != from ? 4 : 0;
  };
  EXPECT_THAT(machines.run([&](auto group) { return go_on(group, 0, 3); }), Each(0));
  EXPECT_THAT(machines.run([&](auto group) { return go_on(group, 3, 4); }), Each(0)) << "what is in memory goes before";
  machines.lose(1);
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(machines.run([&](auto group) { return go_on(group, kSavedStep, 4); }), Each(0));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("lockstep: zero1: the state in memory is not whole (node 1 has nothing of it): the job goes "
                        "back to step 2, of its checkpoint\n"));
  EXPECT_THAT(machines.run([&](auto group) { return go_on(group, 4, kLastStep); }), Each(0));
  machines.leave(0);
  EXPECT_THAT(machines.run([&](auto group) { return go_on(group, kSavedStep, kLastStep); }), Each(0));
}

// No agent has all of the state.
TEST(Zero1Checkpoint, IsNotLeftToTheAgent) {
  const ScratchFolder folder;
  run_nodes({1, 1}, [&](const std::shared_ptr<comm::Group>& group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group, {.zero1 = true});
    optim::SGD optimizer(ddp, {.lr = 0.1});
    EXPECT_FALSE(save_on_failure(folder.path(), ddp));
  });
}

// Nor does one find some of it where an attempt on one node, which had all, has said that it lies.
TEST(Zero1Checkpoint, IsNotMadeOfAShareByWhatAnEarlierAttemptHasLeftToTheAgent) {
  const ScratchFolder folder;
  Machines machines({1});
  const auto go_on = [&](const std::shared_ptr<comm::Group>& group, std::uint64_t until) {
    ::setenv("LOCKSTEP_SEGMENT", "an agent's", 1);
    SmallJob job = zero1_job(Amp::none, until);
    bool is_left = false;
    job.after_step = [&](parallel::Engine& engine) { is_left = save_on_failure(folder.path(), engine); };
    run_small_job(group, job);
    return is_left ? 0 : 3;
  };
  EXPECT_THAT(machines.run([&](auto group) { return go_on(group, 1); }), Each(0));
  machines.come(1);
  EXPECT_THAT(machines.run([&](auto group) { return go_on(group, 2); }), Each(3));
  const base::Segment segment = machines.sit_out(0);
  const std::string save = std::string(LOCKSTEP_CHECKPOINT_PROGRAM) + " save-segment " + segment.path() + " 1";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(std::system(save.c_str()), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("lockstep: step 2, the last one that was committed, is not saved: nodes share out the "
                        "optimizer's state"));
  EXPECT_EQ(folder.entries(), 0u);
}

}  // namespace
}  // namespace lockstep::checkpoint
