// Saving in the loop and beside it, what the system refuses, and the weights of a checkpoint in a model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <semaphore>

#include "lockstep/base/stop_on.h"
#include "lockstep/checkpoint.h"
#include "lockstep/checkpoint/store/state_json.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/state/hash.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_job.h"
#include "tests/support/usage_error.h"
#include "tests/support/what_of.h"

// A disk that fails once, or stands still until the test lets it go on, for a minute at most: in the place of libc's
// fsync for all that is linked into this program. It notes for whom it works.
namespace {
std::atomic<bool> disk_fails{false};
std::atomic<bool> disk_stands_still{false};
std::binary_semaphore disk_goes_on{0};
std::atomic<int> nice_of_last{0};
}  // namespace

extern "C" int fsync(int fd) {
  nice_of_last = getpriority(PRIO_PROCESS, id_t(gettid()));
  if (disk_fails.exchange(false)) {
    errno = EIO;
    return -1;
  }
  if (disk_stands_still) {
    disk_goes_on.try_acquire_for(std::chrono::minutes(1));
    disk_stands_still = false;
  }
  return int(syscall(SYS_fsync, fd));
}

namespace lockstep::checkpoint {
namespace {

using support::RankKind;
using support::run_ranks;
using support::SmallNet;
using support::what_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_file;
using testing::ScratchFolder;

void take_step(DistributedDataParallel<SmallNet>& ddp, optim::Optimizer& optimizer) {
  for (auto& shard : ddp.shards(support::small_batch(ddp.next_step(), ddp.local_shards())))
    torch::nn::functional::cross_entropy(ddp(shard.data), shard.target).backward();
  optimizer.step();
}

// A job of one rank that saves beside its steps.
struct SavingJob {
  SavingJob(const std::shared_ptr<comm::Group>& group, const std::string& folder)
      : ddp(SmallNet(), group), saver(folder, ddp), optimizer(ddp) {}
  DistributedDataParallel<SmallNet> ddp;
  BackgroundSaver saver;
  optim::SGD optimizer;
};

TEST(Save, WhatTheSystemRefusesIsToldAndTrainingGoesOn) {
  const ScratchFolder folder;
  run_ranks(RankKind::processes, 2, [&](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    EXPECT_THAT(testing::usage_error([&] { save(folder.path(), ddp); }), HasSubstr("without an optimizer"));
    optim::SGD optimizer(ddp);
    EXPECT_THAT(testing::usage_error([&] { save(folder.path(), ddp, {.extra = "{"}); }), HasSubstr("extra"));
    const std::string in_the_way = folder.file("file");
    if (group->rank() == 0) folder.write("file", "");
    const Saved refused = save(in_the_way, ddp);
    EXPECT_EQ(refused.path, "");
    EXPECT_EQ(refused.problem.empty(), group->rank() != 0);
    take_step(ddp, optimizer);
    if (group->rank() == 0) std::filesystem::remove(in_the_way);
    EXPECT_EQ(save(in_the_way, ddp).problem, "");
    group->barrier();
    EXPECT_EQ(find(in_the_way)->step, 1u);
  });
}

TEST(BackgroundSaving, HasTheStateOfItsStepWhileTrainingGoesOn) {
  const ScratchFolder folder;
  run_ranks(RankKind::processes, 2, [&](auto group) {
    torch::manual_seed(1);
    SmallNet model(/*ballast=*/2'000'000);
    DistributedDataParallel ddp(model, group, {.shards = 2, .ema = parallel::EmaOptions{.decay = 0.5}});
    BackgroundSaver saver(folder.path(), ddp);
    optim::Adam optimizer(ddp);
    std::map<std::uint64_t, std::string> weights;
    std::uint64_t calls = 0;
    while (ddp.steps() < 40) {
      take_step(ddp, optimizer);
      weights[ddp.steps()] = ddp.weights_hash();
      saver.save({.extra = std::to_string(ddp.steps())});
      ++calls;
    }
    saver.wait();
    saver.save();
    EXPECT_EQ(saver.wait().problem, "");
    group->barrier();
    if (group->rank() != 0) return;
    const std::vector<std::uint64_t> steps = steps_in(folder.path());
    EXPECT_EQ(steps.back(), 40u);
    EXPECT_GE(steps.size() + saver.skipped(), calls);
    EXPECT_LE(steps.size() + saver.skipped(), calls + 1);
    for (const std::uint64_t step : steps) {
      const std::string path = folder.file(step_name(step));
      EXPECT_THAT(verify(path), IsEmpty());
      EXPECT_EQ(read_manifest(path).weights, weights[step]);
      if (step < 40) {
        EXPECT_EQ(read_state(path).extra, std::to_string(step));
      }
    }
  });
}

// What a save needs of the system is no failure of the job, and the next one begins again.
TEST(BackgroundSaving, WhereNoFileDescriptorsAreLeftThereIsNoCheckpointAndTrainingGoesOn) {
  const ScratchFolder folder;
  run_ranks(RankKind::single, 1, [&](auto group) {
    SavingJob job(group, folder.path());
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
    ::testing::internal::CaptureStderr();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    EXPECT_TRUE(job.saver.save());
    const Saved refused = job.saver.wait();
    setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("lockstep: warning: no checkpoint of step 0: "));
    EXPECT_EQ(refused.path, "");
    EXPECT_NE(refused.problem, "");
    EXPECT_TRUE(job.saver.save());
    EXPECT_EQ(job.saver.wait().path, folder.file(step_name(0)));
  });
}

// An error of the disk while steps go on: the earlier checkpoint stays the last, and the next save begins again.
TEST(BackgroundSaving, AnErrorOfTheDiskLeavesTheEarlierOneAndTrainingGoesOn) {
  const ScratchFolder folder;
  run_ranks(RankKind::single, 1, [&](auto group) {
    SavingJob job(group, folder.path());
    const auto save_beside_a_step = [&] {
      take_step(job.ddp, job.optimizer);
      EXPECT_TRUE(job.saver.save());
      take_step(job.ddp, job.optimizer);
      return job.saver.wait();
    };
    EXPECT_EQ(save_beside_a_step().path, folder.file(step_name(1)));
    disk_fails = true;
    ::testing::internal::CaptureStderr();
    const Saved refused = save_beside_a_step();
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                ::testing::MatchesRegex("lockstep: warning: no checkpoint of step 3: .*Input/output error.*; training "
                                        "goes on\n"));
    EXPECT_EQ(refused.path, "");
    EXPECT_THAT(refused.problem, HasSubstr("Input/output error"));
    EXPECT_THAT(steps_in(folder.path()), ::testing::ElementsAre(1u)) << "no half one";
    EXPECT_EQ(find(folder.path())->step, 1u);
    EXPECT_EQ(save_beside_a_step().path, folder.file(step_name(5)));
    EXPECT_EQ(find(folder.path())->step, 5u);
    EXPECT_EQ(job.ddp.steps(), 6u);
  });
}

// A save takes no core from what trains, and one that trains does not wait for others to save.
TEST(BackgroundSaving, GivesWayToWhatTrains) {
  const ScratchFolder folder;
  run_ranks(RankKind::single, 1, [&](auto group) {
    SavingJob job(group, folder.path());
    const int before = getpriority(PRIO_PROCESS, id_t(gettid()));
    EXPECT_TRUE(job.saver.save());
    EXPECT_EQ(job.saver.wait().problem, "");
    EXPECT_EQ(nice_of_last, kNiceOfSaves);
    EXPECT_EQ(getpriority(PRIO_PROCESS, id_t(gettid())), before);
    save(folder.path(), job.ddp);
    EXPECT_EQ(nice_of_last, before);
  });
}

// An evaluation of the average is where its result is at hand, and saved with.
TEST(CheckpointSave, WhileTheModelShowsItsAverageItsWeightsAreSaved) {
  const ScratchFolder folder;
  run_ranks(RankKind::single, 1, [&](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group, {.ema = EmaOptions{.decay = 0.5}});
    optim::SGD optimizer(ddp, {.lr = 0.1});
    for (int i = 0; i < 3; ++i) take_step(ddp, optimizer);
    const std::string weights = ddp.weights_hash();
    save(folder.file("outside"), ddp);
    {
      const auto averaged = ddp.ema().use();
      EXPECT_EQ(ddp.weights_hash(), weights);
      save(folder.file("inside"), ddp);
    }
    for (const char* name : {"/model.safetensors", "/optimizer.safetensors", "/ema.safetensors", "/MANIFEST"})
      EXPECT_EQ(read_file(folder.file("inside/" + step_name(3) + name)),
                read_file(folder.file("outside/" + step_name(3) + name)))
          << name;
  });
}

// Steps go on beside a save that takes long, those that fall due are left out and counted, and what it writes is the
// state that it began with.
TEST(BackgroundSaving, ASaveThatTakesLongLeavesOutThoseThatFallDue) {
  const ScratchFolder folder;
  run_ranks(RankKind::single, 1, [&](auto group) {
    SavingJob job(group, folder.path());
    std::map<std::uint64_t, std::string> weights;
    const auto step = [&] {
      take_step(job.ddp, job.optimizer);
      weights[job.ddp.steps()] = job.ddp.weights_hash();
    };
    step();
    disk_stands_still = true;
    EXPECT_TRUE(job.saver.save());
    for (std::uint64_t left_out = 1; left_out <= 4; ++left_out) {
      step();
      EXPECT_FALSE(job.saver.save());
      EXPECT_EQ(job.saver.skipped(), left_out);
      EXPECT_FALSE(job.saver.ended());
    }
    EXPECT_THAT(steps_in(folder.path()), IsEmpty()) << "nothing is there before it is whole";
    disk_goes_on.release();
    EXPECT_EQ(job.saver.wait().path, folder.file(step_name(1)));
    EXPECT_EQ(job.saver.wait().step, 1u) << "not that which was left out last";
    EXPECT_THAT(verify(folder.file(step_name(1))), IsEmpty());
    EXPECT_EQ(read_manifest(folder.file(step_name(1))).weights, weights[1]);
    EXPECT_TRUE(job.saver.save()) << "the next one begins again";
    EXPECT_EQ(job.saver.wait().problem, "");
    EXPECT_EQ(job.saver.wait().step, 5u);
    EXPECT_THAT(steps_in(folder.path()), ::testing::UnorderedElementsAre(1u, 5u));
    EXPECT_EQ(read_manifest(folder.file(step_name(5))).weights, weights[5]);
    EXPECT_EQ(job.saver.skipped(), 4u);
  });
}

TEST(BackgroundSaving, ComesBeforeTheOptimizerAndOnAllRanks) {
  const ScratchFolder folder;
  run_ranks(RankKind::single, 1, [&](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp);
    EXPECT_THAT(testing::usage_error([&] { BackgroundSaver saver(folder.path(), ddp); }),
                HasSubstr("after an optimizer was attached"));
  });
  run_ranks(RankKind::processes, 2, [&](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    if (group->rank() == 0) ddp.state().make_holdable();
    EXPECT_THAT(what_of([&] { optim::SGD optimizer(ddp); }), HasSubstr("saves in another way than rank 0"));
  });
}

// A signal within a step ends the loop behind that step, one between two behind the next: on all ranks behind the same.
TEST(Preemption, TakesOneStepAtMostAndASave) {
  for (const bool within : {true, false}) {
    const ScratchFolder folder;
    run_ranks(RankKind::processes, 3, [&](auto group) {
      const StopOn stop({SIGUSR1});
      SmallNet model;
      DistributedDataParallel ddp(model, group);
      optim::SGD optimizer(ddp);
      const auto is_asked = [&](bool here, std::uint64_t step) { return here && group->rank() == 2 && step == 4; };
      while (ddp.steps() < 20) {
        for (auto& shard : ddp.shards(support::small_batch(ddp.next_step(), ddp.local_shards()))) {
          if (is_asked(within, ddp.steps())) raise(SIGUSR1);
          torch::nn::functional::cross_entropy(ddp(shard.data), shard.target).backward();
        }
        optimizer.step();
        if (ddp.should_stop()) break;
        if (is_asked(!within, ddp.steps())) raise(SIGUSR1);
      }
      EXPECT_EQ(ddp.steps(), 5u) << "the one behind the four that were made before the signal";
      save(folder.path(), ddp);
      group->barrier();
      EXPECT_EQ(find(folder.path())->step, 5u);
    });
  }
}

TEST(Load, GivesTheModelTheWeightsOfACheckpoint) {
  const ScratchFolder folder;
  run_ranks(RankKind::processes, 2, [&](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group, {.ema = parallel::EmaOptions{.decay = 0.5}});
    optim::Adam optimizer(ddp);
    std::vector<std::string> weights, averages;
    for (const double metric : {0.9, 0.8, 0.7}) {
      take_step(ddp, optimizer);
      weights.push_back(ddp.weights_hash());
      averages.push_back(state::tensors_hash(ddp.ema().state_dict()));
      save(folder.path(), ddp, {.metric = metric});
    }
    group->barrier();
    EXPECT_THAT(load(folder.path(), ddp, "best"), HasSubstr("step-00000001"));
    EXPECT_EQ(ddp.weights_hash(), weights[0]);
    load(folder.path(), ddp, "best", /*average=*/true);
    EXPECT_EQ(ddp.weights_hash(), averages[0]);
    EXPECT_EQ(ddp.steps(), 3u);
    load(folder.path(), ddp);
    EXPECT_EQ(ddp.weights_hash(), weights[2]);
    group->barrier();
  });
  run_ranks(RankKind::processes, 2, [&](auto group) {  // without an optimizer of ours
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    const std::string path = load(folder.path(), ddp, folder.file("last"));
    EXPECT_EQ(ddp.weights_hash(), read_manifest(path).weights);
  });
}

// Of two machines the second has no checkpoints: it stands elsewhere, and the path is a relative one.
TEST(Load, IsReadByRank0Alone) {
  const ScratchFolder folder;
  const ScratchFolder elsewhere;
  run_ranks(RankKind::nodes, 2, [&](auto group) {
    std::filesystem::current_path(group->rank() == 0 ? folder.path() : elsewhere.path());
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp);
    take_step(ddp, optimizer);
    save("here", ddp);
    torch::manual_seed(2);
    SmallNet other;
    DistributedDataParallel plain(other, group);
    EXPECT_NE(plain.weights_hash(), ddp.weights_hash());
    EXPECT_EQ(load("here", plain), "here/step-00000001");
    EXPECT_EQ(plain.weights_hash(), ddp.weights_hash());
    SmallNet larger(/*ballast=*/10);
    DistributedDataParallel misfit(larger, group);
    EXPECT_THAT(testing::usage_error([&] { load("here", misfit); }), HasSubstr("does not fit the model"));
  });
}

// The device alone knows which of them it has left out.
TEST(ClassicSave, HasTheStepsThatAFusedOptimizerHasMade) {
  const ScratchFolder folder;
  run_ranks(RankKind::single, 1, [&](auto group) {
    torch::nn::Linear model(3, 2);
    DistributedDataParallel ddp(model, group);
    FusedAdam optimizer(model->parameters(), torch::optim::AdamOptions(0.01));
    for (const float found_inf : {0.0F, 1.0F, 0.0F}) {
      ddp(torch::ones({1, 3})).sum().backward();
      optimizer.found_inf = torch::tensor(found_inf);
      optimizer.step();
    }
    const std::string path = save(folder.path(), ddp, optimizer, 3).path;
    EXPECT_EQ(read_safetensors(path + "/optimizer.safetensors").at("weight/step").item<std::int64_t>(), 2);
  });
}

}  // namespace
}  // namespace lockstep::checkpoint
