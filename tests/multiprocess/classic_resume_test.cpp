// Checkpoints of training with optimizers of torch::optim.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "lockstep/checkpoint.h"
#include "lockstep/checkpoint/store/state_json.h"
#include "lockstep/state/hash.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_job.h"
#include "tests/support/usage_error.h"

namespace lockstep::checkpoint {
namespace {

using support::RankKind;
using support::run_ranks;
using support::SharedText;
using support::SmallNet;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ScratchFolder;
using testing::usage_error;
using Parameters = std::vector<at::Tensor>;
using ClassicMaker = std::function<std::unique_ptr<torch::optim::Optimizer>(const Parameters&)>;

template <class Optimizer, class Options>
ClassicMaker classic(Options options) {
  return [=](const Parameters& parameters) { return std::make_unique<Optimizer>(parameters, options); };
}

struct ClassicKind {
  friend void PrintTo(const ClassicKind& kind, std::ostream* out) { *out << kind.name; }
  std::string name;
  ClassicMaker make;
};

std::vector<ClassicKind> classic_kinds() {
  namespace t = torch::optim;
  return {{"SGD", classic<t::SGD>(t::SGDOptions(0.05).momentum(0.9))},
          {"PlainSGD", classic<t::SGD>(t::SGDOptions(0.05))},
          {"Adam", classic<t::Adam>(t::AdamOptions(0.01).amsgrad(true))},
          {"AdamW", classic<t::AdamW>(t::AdamWOptions(0.01))},
          {"RMSprop", classic<t::RMSprop>(t::RMSpropOptions(0.01).centered(true).momentum(0.5))},
          {"Adagrad", classic<t::Adagrad>(t::AdagradOptions(0.01))}};
}

class ClassicResume : public ::testing::TestWithParam<ClassicKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, ClassicResume, ::testing::ValuesIn(classic_kinds()),
                         [](const auto& info) { return info.param.name; });

// From the checkpoint in `folder`, if there is one, to step `until`; saves at step 3. Each rank has dropout of its own.
// Returns the weights' hash.
std::string train(const std::shared_ptr<comm::Group>& group, const ClassicMaker& make, const std::string& folder,
                  std::uint64_t until) {
  torch::manual_seed(1);
  SmallNet model;
  torch::manual_seed(std::uint64_t(100 + group->rank()));
  DistributedDataParallel ddp(model, group);
  std::int64_t kept = 0;
  ddp.state().keep("kept", kept);
  const auto optimizer = make(model->parameters());
  std::uint64_t step = resume(folder, ddp, *optimizer).step;
  EXPECT_EQ(kept, std::int64_t(step));
  while (step < until) {
    const auto batch = support::small_batch(step + 1, ddp.local_shards());
    optimizer->zero_grad();
    torch::nn::functional::cross_entropy(ddp(batch.data), batch.target).backward();
    optimizer->step();
    kept = std::int64_t(++step);
    if (step == 3) save(folder, ddp, *optimizer, step);
  }
  return ddp.weights_hash();
}

TEST_P(ClassicResume, EndsAsTheUndisturbedRun) {
  const ScratchFolder folder;
  SharedText expected;
  run_ranks(RankKind::processes, 2, [&](auto group) {
    const std::string hash = train(group, GetParam().make, folder.file("a"), 6);
    if (group->rank() == 0) expected.set(hash);
  });
  EXPECT_THAT(verify(folder.file("a/step-00000003")), IsEmpty());
  run_ranks(RankKind::processes, 2, [&](auto group) {
    const std::string hash = train(group, GetParam().make, folder.file("a"), 6);
    if (group->rank() != 0) return;  // whose module buffers count
    EXPECT_EQ(hash, expected.get());
  });
}

// As train(), with an average of the weights. Returns the hash of it and of the weights.
std::string train_averaged(const std::shared_ptr<comm::Group>& group, const std::string& folder, std::uint64_t until) {
  torch::manual_seed(1);
  SmallNet model;
  DistributedDataParallel ddp(model, group);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.01));
  ExponentialMovingAverage average(*model, {.decay = 0.9, .interval = 2, .warmup_steps = 2});
  std::uint64_t step = resume(folder, ddp, optimizer, average).step;
  EXPECT_EQ(average.updates(), step);
  while (step < until) {
    const auto batch = support::small_batch(step + 1, ddp.local_shards());
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(ddp(batch.data), batch.target).backward();
    optimizer.step();
    average.update_parameters();
    if (++step == 3) save(folder, ddp, optimizer, average, step);
  }
  return ddp.weights_hash() + state::tensors_hash(average.state_dict());
}

// Step 4 is left out by the interval and step 5 is not: the count goes on, too.
TEST(ClassicAverage, GoesOnFromACheckpoint) {
  const ScratchFolder folder;
  SharedText expected;
  run_ranks(RankKind::processes, 2, [&](auto group) {
    const std::string hash = train_averaged(group, folder.path(), 6);
    if (group->rank() == 0) expected.set(hash);
  });
  EXPECT_THAT(verify(folder.file("step-00000003")), IsEmpty());
  run_ranks(RankKind::processes, 2, [&](auto group) {
    const std::string hash = train_averaged(group, folder.path(), 6);
    if (group->rank() == 0) {
      EXPECT_EQ(hash, expected.get());
    }
  });
}

TEST(ClassicAverage, IsLoadedAsThatOfAnOptimizerOfOurs) {
  const ScratchFolder folder;
  run_ranks(RankKind::single, 1, [&](auto group) {
    torch::nn::Linear model(3, 2);
    DistributedDataParallel ddp(model, group);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    ExponentialMovingAverage average(*model);
    average.update_parameters();
    const std::string averaged = state::tensors_hash(average.state_dict());
    {
      const at::NoGradGuard no_grad;
      model->weight.fill_(1);
    }
    save(folder.path(), ddp, optimizer, average, 1);
    EXPECT_NE(ddp.weights_hash(), averaged);
    load(folder.path(), ddp, "last", /*average=*/true);
    EXPECT_EQ(ddp.weights_hash(), averaged);
  });
}

TEST(ClassicAverage, WhatWouldLoseItOrBeginItAnewIsRefused) {
  const ScratchFolder folder;
  run_ranks(RankKind::single, 1, [&](auto group) {
    torch::nn::Linear model(3, 2), other(4, 2);
    DistributedDataParallel ddp(model, group);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    ExponentialMovingAverage average(*model), of_another(*other);
    save(folder.file("with"), ddp, optimizer, average, 1);
    save(folder.file("without"), ddp, optimizer, 1);
    EXPECT_THAT(usage_error([&] { resume(folder.file("with"), ddp, optimizer); }),
                HasSubstr("is of another job: its average of the weights is there, here missing"));
    EXPECT_THAT(usage_error([&] { resume(folder.file("without"), ddp, optimizer, average); }),
                HasSubstr("is of another job: its average of the weights is missing, here there"));
    EXPECT_THAT(usage_error([&] { save(folder.file("with"), ddp, optimizer, of_another, 2); }),
                AllOf(HasSubstr("the average"), HasSubstr("weight")));
    const auto shown = average.use();
    EXPECT_THAT(usage_error([&] { save(folder.file("with"), ddp, optimizer, average, 2); }),
                HasSubstr("the module shows its averaged weights"));
    EXPECT_THAT(usage_error([&] { resume(folder.file("with"), ddp, optimizer, average); }),
                HasSubstr("the module shows its averaged weights"));
  });
  EXPECT_FALSE(std::filesystem::exists(folder.file("with/step-00000002")));
}

// Registers a hook that remembers.
using HookMaker = std::function<void(parallel::Engine& ddp, const std::shared_ptr<comm::Group>& group)>;

struct HookKind {
  friend void PrintTo(const HookKind& kind, std::ostream* out) { *out << kind.name; }
  std::string name;
  HookMaker add;
};

template <class State, class Hook, class Options>
HookMaker hook_of(Hook hook, Options options) {
  return [=](parallel::Engine& ddp, const auto& group) {
    ddp.register_comm_hook(std::make_shared<State>(group, options), hook);
  };
}

std::vector<HookKind> hook_kinds() {
  return {{"PowerSGD", hook_of<PowerSGDState>(powerSGD_hook,
                                              PowerSGDOptions{.start_powerSGD_iter = 2, .min_compression_rate = 0.1})},
          {"TopK", hook_of<TopKState>(topk_hook, TopKOptions{.ratio = 0.1})}};
}

class HookResume : public ::testing::TestWithParam<HookKind> {
 protected:
  // As train(), with the hook: from the checkpoint, if any, to step `until`. Returns weights and what hooks remember.
  static std::string train_hooked(const std::shared_ptr<comm::Group>& group, const HookMaker& add,
                                  const std::string& folder, std::uint64_t until) {
    torch::manual_seed(1);
    SmallNet model;
    model->dropout->options.p(0);
    DistributedDataParallel ddp(model, group);
    add(ddp, group);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    for (std::uint64_t step = resume(folder, ddp, optimizer).step; step < until;) {
      const auto batch = support::small_batch(step + 1, ddp.local_shards());
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(ddp(batch.data), batch.target).backward();
      optimizer.step();
      if (++step == 3) save(folder, ddp, optimizer, step);
    }
    return ddp.weights_hash() + state::tensors_hash(ddp.hook_memory()->get());
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, HookResume, ::testing::ValuesIn(hook_kinds()),
                         [](const auto& info) { return info.param.name; });

// Killed behind its save, in the middle of a step.
TEST_P(HookResume, EachRankGoesOnFromWhatItsHookRemembered) {
  const ScratchFolder folder;
  SharedText expected[2];
  run_ranks(RankKind::processes, 2, [&](auto group) {
    expected[group->rank()].set(train_hooked(group, GetParam().add, folder.file("whole"), 7));
  });
  EXPECT_THAT(verify(folder.file("whole/step-00000003")), IsEmpty());
  for (const char* file : {"hook-rank-0.safetensors", "hook-rank-1.safetensors"})
    EXPECT_TRUE(std::filesystem::exists(folder.file("whole/step-00000003/") + file)) << file;
  run_ranks(RankKind::processes, 2,
            [&](auto group) {
              train_hooked(group, GetParam().add, folder.file("killed"), 5);
              kill(getpid(), SIGKILL);
            },
            {.allowed_signal = SIGKILL});
  run_ranks(RankKind::processes, 2, [&](auto group) {
    EXPECT_EQ(train_hooked(group, GetParam().add, folder.file("killed"), 7), expected[group->rank()].get());
  });
  EXPECT_NE(expected[0].get(), expected[1].get()) << "each rank has its own";
}

TEST_P(HookResume, WithAnotherNumberOfRanksItBeginsAnewWhichIsTold) {
  const ScratchFolder folder;
  run_ranks(RankKind::processes, 2, [&](auto group) { train_hooked(group, GetParam().add, folder.path(), 3); });
  const std::string checkpoint = folder.file("step-00000003");
  const auto told_by = [&](const HookMaker& add, const std::function<void(parallel::Engine&)>& look) {
    ::testing::internal::CaptureStderr();
    run_ranks(RankKind::single, 1, [&](auto group) {
      SmallNet model;
      DistributedDataParallel ddp(model, group);
      add(ddp, group);
      torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
      EXPECT_EQ(resume(folder.path(), ddp, optimizer).step, 3u);
      look(ddp);
    });
    return ::testing::internal::GetCapturedStderr();
  };
  const auto begins_anew = [](parallel::Engine& ddp) {
    EXPECT_EQ(state::tensors_hash(ddp.hook_memory()->get()), state::tensors_hash(ddp.hook_memory()->initial));
  };
  EXPECT_THAT(told_by(GetParam().add, begins_anew),
              HasSubstr("lockstep: checkpoint '" + checkpoint +
                        "' has the memory of a communication hook on 2 ranks, here are 1: the hook begins anew\n"));
  const auto nothing = [](auto&&...) {};
  EXPECT_THAT(told_by(nothing, nothing), HasSubstr("none that could take it is registered: it is left out\n"));
}

TEST(HookResumeRules, AnotherHookIsRefused) {
  const ScratchFolder folder;
  const std::vector<HookKind> kinds = hook_kinds();
  for (const HookKind& kind : kinds)
    run_ranks(RankKind::single, 1, [&](auto group) {
      torch::nn::Linear model(3, 2);
      DistributedDataParallel ddp(model, group);
      kind.add(ddp, group);
      torch::optim::SGD optimizer(model->parameters(), 0.1);
      if (&kind == &kinds.front()) {
        save(folder.path(), ddp, optimizer, 1);
      } else {
        EXPECT_THAT(usage_error([&] { resume(folder.path(), ddp, optimizer); }),
                    AllOf(HasSubstr("is of another job"), HasSubstr("top-k: the state has 'rng'")));
      }
    });
}

TEST(ClassicResumeRules, WithAnotherNumberOfRanksTheGeneratorStaysAsSeededWhichIsTold) {
  const ScratchFolder folder;
  const auto job = [&](auto group, const auto& then) {
    torch::nn::Linear model(3, 2);
    DistributedDataParallel ddp(model, group);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    then(ddp, optimizer);
  };
  run_ranks(RankKind::processes, 2, [&](auto group) {
    job(group, [&](auto& ddp, auto& optimizer) { save(folder.path(), ddp, optimizer, 1); });
  });
  ::testing::internal::CaptureStderr();
  run_ranks(RankKind::single, 1, [&](auto group) {
    job(group, [&](auto& ddp, auto& optimizer) {
      torch::manual_seed(5);
      EXPECT_EQ(resume(folder.path(), ddp, optimizer).step, 1u);
    });
  });
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("lockstep: checkpoint '" + folder.file("step-00000001") +
                "' has random numbers of 2 ranks, here is 1: torch's generator stays as the program has seeded it\n"));
  const at::Tensor next = torch::rand({4});
  torch::manual_seed(5);
  EXPECT_TRUE(next.equal(torch::rand({4})));
}

TEST(ClassicResumeRules, OtherJobsAreRefused) {
  const ScratchFolder folder;
  run_ranks(RankKind::single, 1, [&](auto group) {
    torch::nn::Linear model(3, 2);
    DistributedDataParallel ddp(model, group);
    double best = 1;
    ddp.state().keep("best", best);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    ddp(torch::ones({1, 3})).sum().backward();
    optimizer.step();
    save(folder.path(), ddp, optimizer, 1);
    torch::optim::Adam adam(model->parameters());
    EXPECT_THAT(usage_error([&] { resume(folder.path(), ddp, adam); }),
                AllOf(HasSubstr("its optimizer is torch::optim::SGD"), HasSubstr("here torch::optim::Adam")));
    torch::optim::LBFGS other(model->parameters());
    EXPECT_THAT(usage_error([&] { save(folder.path(), ddp, other, 2); }), HasSubstr("only SGD, Adam"));
  });
  run_ranks(RankKind::single, 1, [&](auto group) {
    torch::nn::Linear model(3, 2);
    DistributedDataParallel ddp(model, group);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    EXPECT_THAT(usage_error([&] { resume(folder.path(), ddp, optimizer); }),
                HasSubstr("keeps the bytes 'best' (8), here none"));
    optim::SGD ours(ddp);
    EXPECT_THAT(usage_error([&] { resume(folder.path(), ddp, optimizer); }), HasSubstr("lockstep::optim"));
  });
  run_ranks(RankKind::single, 1, [&](auto group) {
    torch::nn::Linear model(4, 2);
    DistributedDataParallel ddp(model, group);
    double best = 1;
    ddp.state().keep("best", best);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    EXPECT_THAT(usage_error([&] { resume(folder.path(), ddp, optimizer); }), HasSubstr("[2, 4] expected"));
  });
}

// Rank 1 is where the folder is not. The other one hears of it, and does not wait until the deadline.
TEST(ClassicResumeRules, WhatARankAloneCannotReadIsRefusedOnAll) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder.file("elsewhere"));
  run_ranks(RankKind::processes, 2, [&](auto group) {
    torch::nn::Linear model(3, 2);
    DistributedDataParallel ddp(model, group);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    std::filesystem::current_path(folder.path());
    save("checkpoints", ddp, optimizer, 1);
    if (group->rank() == 1) std::filesystem::current_path("elsewhere");
    EXPECT_THAT(usage_error([&] { resume("checkpoints", ddp, optimizer); }),
                HasSubstr("cannot open 'checkpoints/step-00000001/state.json'"));
    group->barrier();  // it is of use still
  });
}

TEST(ClassicResumeRules, AnotherSeedIsRefusedAndOtherShardsOrThreadsAreTold) {
  const ScratchFolder folder;
  const auto with = [&](parallel::DataParallelOptions options, const auto& then) {
    run_ranks(RankKind::single, 1, [&](auto group) {
      torch::nn::Linear model(3, 2);
      DistributedDataParallel ddp(model, group, options);
      torch::optim::SGD optimizer(model->parameters(), 0.1);
      then(ddp, optimizer);
    });
  };
  at::set_num_threads(1);
  with({.seed = 7}, [&](auto& ddp, auto& optimizer) { save(folder.path(), ddp, optimizer, 1); });
  with({.seed = 8}, [&](auto& ddp, auto& optimizer) {
    EXPECT_THAT(usage_error([&] { resume(folder.path(), ddp, optimizer); }), HasSubstr("its seed is 7, here 8"));
  });
  const auto told = [&](parallel::DataParallelOptions options) {
    ::testing::internal::CaptureStderr();
    with(options, [&](auto& ddp, auto& optimizer) { resume(folder.path(), ddp, optimizer); });
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(told({.seed = 7}), "");
  at::set_num_threads(2);
  EXPECT_EQ(told({.seed = 7}), "lockstep: checkpoint '" + folder.file("step-00000001") +
                                   "' is of 1 shard, 1 thread, here 1 shard, 2 threads: the bits to come are others\n");
  at::set_num_threads(1);
}

}  // namespace
}  // namespace lockstep::checkpoint
