// A job that goes on from a checkpoint has the states of one that nobody interrupted, bit for bit, on any number of
// ranks: weights, optimizer state, module buffers, averages, counts of updates, record and kept bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <random>
#include <thread>

#include "lockstep/base/generation.h"
#include "lockstep/checkpoint.h"
#include "lockstep/comm/shm/shm_group.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_job.h"
#include "tests/support/usage_error.h"
#include "tests/support/what_of.h"

namespace lockstep::checkpoint {
namespace {

using support::OptimizerMaker;
using support::RankKind;
using support::run_ranks;
using support::run_small_job;
using support::SharedText;
using support::SmallJob;
using support::SmallNet;
using support::what_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ScratchFolder;
using ::testing::SizeIs;

constexpr std::uint64_t kInterrupted = 3;

// The same optimizer, whose state begins with a checkpoint.
OptimizerMaker resumed(const OptimizerMaker& maker, const std::string& folder, const std::string& which = "auto") {
  return [=](optim::Target& target) {
    resume(folder, dynamic_cast<parallel::Engine&>(target), which);
    return maker(target);
  };
}

// What `job` leaves as hash of all its state, on so many ranks.
std::string state_of(int ranks, SmallJob job, const std::function<void(parallel::Engine&)>& then = {}) {
  SharedText hash;
  run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [&](auto group) {
    SmallJob mine = job;
    mine.after_step = [&](parallel::Engine& engine) {
      job.after_step(engine);
      if (then) then(engine);
      if (engine.steps() == job.steps && group->rank() == 0) hash.set(engine.state().hash());
    };
    run_small_job(group, mine);
  });
  return hash.get();
}

struct Kind {
  friend void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
  std::string name;
  SmallJob job;
};

std::vector<Kind> kinds() {
  using Group = optim::ParamGroup<optim::SGDOptions>;
  const OptimizerMaker groups = support::maker<optim::SGDOptions>({Group{"*.bias", {.lr = 1e-3}}, Group{"*"}},
                                                                  optim::SGDOptions{.lr = 0.05, .momentum = 0.9});
  return {{"momentum", {.optimizer = support::small_sgd()}},
          {"adam", {.optimizer = support::small_adam()}},
          {"amsgrad", {.optimizer = support::maker(optim::AdamWOptions{.lr = 0.01, .amsgrad = true})}},
          {"plain", {.optimizer = support::maker(optim::SGDOptions{.lr = 0.1})}},
          {"groups", {.optimizer = groups}},
          {"bf16", {.optimizer = support::small_adam(), .amp = Amp::bf16}},
          {"average", {.optimizer = support::small_adam(), .ema = parallel::EmaOptions{.decay = 0.9, .interval = 2}}},
          {"all", support::disturbed_job(Amp::bf16, 6)}};
}

class Resume : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Resume, ::testing::ValuesIn(kinds()), [](const auto& info) { return info.param.name; });

TEST_P(Resume, HasTheStateOfTheUndisturbedRunOnAnyNumberOfRanks) {
  const SmallJob& whole = GetParam().job;
  const std::string expected = state_of(1, whole);
  for (const auto& [before, after] : {std::pair(1, 3), {3, 2}, {2, 1}, {2, 2}}) {
    const ScratchFolder folder;
    SmallJob first = whole;
    first.steps = kInterrupted;
    state_of(before, first, [&](parallel::Engine& engine) {
      if (engine.steps() == kInterrupted) {
        const Saved saved = save(folder.path(), engine);
        EXPECT_EQ(saved.path.empty(), engine.group().rank() != 0);
      }
    });
    SmallJob second = whole;
    second.optimizer = resumed(whole.optimizer, folder.path());
    second.after_step = [&](parallel::Engine& engine) { EXPECT_GE(engine.steps(), kInterrupted); };
    EXPECT_EQ(state_of(after, second), expected) << before << " ranks, then " << after;
  }
}

TEST_P(Resume, WritesWhatIsCommitted) {
  const ScratchFolder folder;
  state_of(1, GetParam().job, [&](parallel::Engine& engine) {
    if (engine.steps() != kInterrupted) return;
    const std::string path = save(folder.path(), engine).path;
    EXPECT_THAT(verify(path), IsEmpty());
    EXPECT_EQ(read_manifest(path).weights, engine.weights_hash());
    EXPECT_EQ(read_manifest(path).step, kInterrupted);
    // The bytes that write_safetensors() makes of them.
    write_safetensors(folder.file("weights"), engine.state_dict());
    EXPECT_EQ(testing::read_file(path + "/model.safetensors"), testing::read_file(folder.file("weights")));
    if (!engine.options().ema) return;
    write_safetensors(folder.file("average"), engine.ema().state_dict());
    EXPECT_EQ(testing::read_file(path + "/ema.safetensors"), testing::read_file(folder.file("average")));
  });
}

// Counts of updates differ from parameter to parameter, one is frozen from the start, and convolutions are kept
// channels last.
TEST(ResumeParts, FrozenParametersAndMemoryFormats) {
  struct NetImpl : torch::nn::Module {
    NetImpl()
        : conv(register_module("conv", torch::nn::Conv2d(3, 8, 3))),
          norm(register_module("norm", torch::nn::BatchNorm2d(8))),
          other(register_module("other", torch::nn::Conv2d(8, 4, 3))),
          fc(register_module("fc", torch::nn::Linear(4, 2))) {
      register_module("tied", fc);
    }
    at::Tensor forward(const at::Tensor& x) { return fc(other(torch::relu(norm(conv(x)))).mean({2, 3})); }
    torch::nn::Conv2d conv;
    torch::nn::BatchNorm2d norm;
    torch::nn::Conv2d other;
    torch::nn::Linear fc;
  };
  const ScratchFolder folder;
  SharedText expected;
  const auto train = [&](const std::shared_ptr<comm::Group>& group, std::uint64_t until, bool goes_on) {
    torch::manual_seed(goes_on ? 7 : 1);  // other weights where they come from the checkpoint
    const auto net = std::make_shared<NetImpl>();
    net->conv->weight.set_requires_grad(false);
    DistributedDataParallel ddp(net, group, {.shards = 4, .seed = 3, .channels_last = true});
    if (goes_on) {
      EXPECT_EQ(resume(folder.path(), ddp).step, 4u);
    }
    optim::Adam optimizer(ddp, {.lr = 0.01});
    while (ddp.steps() < until) {
      net->other->weight.set_requires_grad(ddp.steps() % 3 == 0);
      auto generator = torch::make_generator<at::CPUGeneratorImpl>(ddp.next_step());
      const at::Tensor all = torch::randn({8, 3, 8, 8}, generator);
      const parallel::ShardSpan mine = ddp.local_shards();
      const support::SmallBatch batch{all.slice(0, mine.first * 2, mine.last * 2), torch::zeros({mine.count() * 2})};
      for (auto& shard : ddp.shards(batch)) ddp(shard.data).square().mean().backward();
      optimizer.step();
      if (ddp.steps() == 4 && !goes_on) save(folder.path(), ddp);
    }
    if (group->rank() != 0) return;
    if (goes_on)
      EXPECT_EQ(ddp.state().hash(), expected.get());
    else
      expected.set(ddp.state().hash());
  };
  run_ranks(RankKind::processes, 2, [&](auto group) { train(group, 8, false); });
  run_ranks(RankKind::processes, 4, [&](auto group) { train(group, 8, true); });
  EXPECT_THAT(verify(folder.file("last")), IsEmpty());
}

// All workers killed at any instant, a save's included; a new job, without the old one's memory, goes on.
TEST(ResumeAfterKills, GoesOnFromTheNewestAndEndsAsTheUndisturbedRun) {
  constexpr std::uint64_t kSteps = 12;
  for (const auto& [amp, background] : {std::pair(Amp::none, false), {Amp::bf16, false}, {Amp::bf16, true}}) {
    const support::History history(amp, kSteps);
    const ScratchFolder folder;
    std::mt19937 random(5);
    int kills = 0;
    for (int attempt = 0; attempt < 60; ++attempt) {
      const bool last = attempt >= 5;
      const int ranks = 1 + attempt % 3;
      const base::Segment segment = base::Segment::create(ranks);
      const std::vector<pid_t> pids =
          support::start_ranks(segment, [&, amp = amp, background = background](auto group) {
            SmallJob job = support::disturbed_job(amp, kSteps);
            job.optimizer = resumed(job.optimizer, folder.path());
            std::optional<BackgroundSaver> saver;
            const OptimizerMaker maker = job.optimizer;
            job.optimizer = [&](optim::Target& target) {
              if (background)
                saver.emplace(folder.path(), dynamic_cast<parallel::Engine&>(target), Retention{.keep = 2});
              return maker(target);
            };
            bool same = true;
            job.after_step = [&](parallel::Engine& engine) {
              same = same && engine.state().hash() == history.at(engine.steps());
              if (engine.steps() == 0) return;
              if (!background) save(folder.path(), engine, {.retention = {.keep = 2}});
              if (!background) return;
              if (engine.steps() == kSteps) saver->wait();  // so that the last one is saved
              saver->save();
              if (engine.steps() == kSteps) saver.reset();
            };
            run_small_job(group, job);
            return same ? 0 : 3;
          });
      if (!last) {
        const std::uint64_t step = 2 * std::uint64_t(attempt) + 1;  // behind the one before
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        while (segment.control().ranks[0].step.load() <= step && std::chrono::steady_clock::now() < deadline)
          std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
        for (const pid_t pid : pids) kill(pid, SIGKILL);
      }
      bool done = true;
      for (const pid_t pid : pids) {
        int status = 0;
        waitpid(pid, &status, 0);
        EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0 || (!last && WEXITSTATUS(status) == 1))
            << "another state than the undisturbed run's";
        kills += WIFSIGNALED(status) ? 1 : 0;
        done = done && !WIFSIGNALED(status) && WEXITSTATUS(status) == 0;
      }
      if (last && done) break;
    }
    EXPECT_GT(kills, 0);
    const auto found = find(folder.path());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, kSteps);
    EXPECT_THAT(found->skipped, IsEmpty());
  }
}

TEST(ResumeRules, AStateInMemoryGoesBeforeACheckpoint) {
  const ScratchFolder folder;
  base::Segment segment = base::Segment::create(1);
  const auto join = [&] { return std::make_shared<comm::ShmGroup>(base::Segment::open(segment.path(), 1), 0); };
  std::string expected;
  {
    SmallNet model;
    DistributedDataParallel ddp(model, join());
    optim::SGD optimizer(ddp);
    save(folder.path(), ddp);
    ddp.modify([&] { model->fc3->bias.fill_(3); });
    expected = ddp.state().hash();
  }
  segment = base::next_generation(std::move(segment), 1);
  SmallNet model;
  DistributedDataParallel ddp(model, join());
  const Resumed from = resume(folder.path(), ddp);
  EXPECT_TRUE(from.in_memory);
  EXPECT_EQ(from.path, "");
  optim::SGD optimizer(ddp);
  EXPECT_EQ(ddp.state().hash(), expected);
}

void damage(const std::string& path) { std::filesystem::resize_file(path + "/model.safetensors", 9); }

TEST(ResumeRules, EveryRankHearsWhereItGoesOn) {
  const ScratchFolder folder;
  run_ranks(RankKind::processes, 3, [&](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    EXPECT_EQ(resume(folder.path(), ddp).path, "") << "auto begins anew where there is none";
    optim::SGD optimizer(ddp);
    EXPECT_EQ(ddp.steps(), 0u);
    save(folder.path(), ddp, {.extra = R"({"lucky":[1, 2]})"});
    group->barrier();
  });
  std::filesystem::copy(folder.file("step-00000000"), folder.file("step-00000009"),
                        std::filesystem::copy_options::recursive);
  damage(folder.file("step-00000009"));
  std::filesystem::remove(folder.file("last"));
  run_ranks(RankKind::processes, 3, [&](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    const Resumed from = resume(folder.path(), ddp);
    EXPECT_EQ(from.path, folder.file("step-00000000"));
    EXPECT_EQ(from.extra, R"({"lucky":[1,2]})");
    ASSERT_THAT(from.skipped, SizeIs(1));
    EXPECT_THAT(from.skipped[0].why, HasSubstr("model.safetensors"));
  });
  damage(folder.file("step-00000000"));
  run_ranks(RankKind::processes, 2, [&](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    EXPECT_THAT(testing::usage_error([&] { resume(folder.path(), ddp); }), HasSubstr("is whole"));
    EXPECT_THAT(testing::usage_error([&] { resume(folder.file("none"), ddp, "last"); }), HasSubstr("there is no"));
    optim::SGD optimizer(ddp);  // the group is of use
    EXPECT_THAT(testing::usage_error([&] { resume(folder.path(), ddp); }), HasSubstr("after the optimizer was made"));
  });
}

TEST(ResumeRules, AnotherJobsCheckpointIsRefusedWithAllDifferences) {
  const ScratchFolder folder;
  const auto alone = [](const std::function<void(std::shared_ptr<comm::Group>)>& body) {
    run_ranks(RankKind::single, 1, body);
  };
  alone([&](auto group) {
    torch::nn::Linear model(3, 2);
    DistributedDataParallel ddp(model, group, {.shards = 2, .seed = 4});
    double best = 1;
    ddp.state().keep("best", best);
    optim::SGD optimizer(ddp, {.momentum = 0.9});
    save(folder.path(), ddp);
  });
  alone([&](auto group) {
    torch::nn::Linear model(3, 2);
    DistributedDataParallel ddp(model, group, {.shards = 3, .seed = 5, .ema = parallel::EmaOptions{}});
    float best = 1;
    ddp.state().keep("best", best);
    ddp.state().keep("more", best);
    resume(folder.path(), ddp);
    EXPECT_THAT(what_of([&] { optim::Adam optimizer(ddp); }),
                AllOf(HasSubstr("the seed is 4, here 5"), HasSubstr("the optimizer's kind is"),
                      HasSubstr("its state for each weight is 1, here 2"),
                      HasSubstr("an average of the weights is not there, here there"),
                      HasSubstr("8 bytes are kept as 'best', here 4"), HasSubstr("no bytes are kept as 'more'")));
  });
  alone([&](auto group) {
    torch::nn::Linear model(4, 2);
    DistributedDataParallel ddp(model, group, {.shards = 2, .seed = 4});
    double best = 1;
    ddp.state().keep("best", best);
    resume(folder.path(), ddp);
    EXPECT_THAT(what_of([&] { optim::SGD optimizer(ddp, {.momentum = 0.9}); }),
                AllOf(HasSubstr("model.safetensors"), HasSubstr("shape of weight is [2, 3], [2, 4] expected")));
  });
}

}  // namespace
}  // namespace lockstep::checkpoint
