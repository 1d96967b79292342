// Checkpoints of training with optimizers of torch::optim.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/checkpoint.h"
#include "lockstep/checkpoint/store/state_json.h"
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

// From the checkpoint in `folder`, if there is one, to step `until`; saves at step 3. Returns the weights' hash.
std::string train(const std::shared_ptr<comm::Group>& group, const ClassicMaker& make, const std::string& folder,
                  std::uint64_t until) {
  torch::manual_seed(1);
  SmallNet model;
  model->dropout->options.p(0);
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

}  // namespace
}  // namespace lockstep::checkpoint
