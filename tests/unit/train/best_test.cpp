#include "lockstep/train/best.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "lockstep/checkpoint/contents.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/models/image_model.h"
#include "lockstep/train/make_model.h"
#include "tests/support/image_files.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Takes everything for the second class, and is as sure of each.
class Second final : public models::ImageModel {
 public:
  Second() : ImageModel("Second") {}
  at::Tensor forward(at::Tensor images) override {
    at::Tensor logits = at::zeros({images.size(0), 2});
    logits.select(1, 1).fill_(1);
    return logits;
  }
};

// Pictures of 4 Mpixel, of which an evaluation takes one at a time: two classes of three.
TEST(EvaluateTask, ALimitLeavesTheNamesFilesAndPicturesOfTheMistakes) {
  const testing::ScratchFolder folder;
  for (const char* part : {"train", "val"})
    testing::write_pictures(folder, part, {.per_class = 3, .size = {1200, 1200}});
  Options options{.model = "resnet18", .dataset = "imagefolder", .data_path = folder.path(), .transforms = "none"};
  options.output_dir = folder.file("run");
  options.limit_val_batches = 2;
  const Input input = make_input(options);
  ASSERT_EQ(input.test->size(), 2);
  support::run_ranks(support::RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
    Second model;
    const Evaluation found =
        evaluate_task(options, input, model, *group, [&](const at::Tensor& data) { return model.forward(data); });
    ASSERT_TRUE(found.answers);
    EXPECT_THAT(found.answers->classes, ElementsAre("ant", "bee"));
    ASSERT_EQ(found.answers->mistakes.size(), 2u);
    EXPECT_EQ(found.answers->mistakes[1].file, folder.file("val/ant/1.jpg"));
    EXPECT_FALSE(found.answers->mistakes[1].picture.empty());
  });
}

// What a loader keeps in its fifth epoch.
std::string kept_place() {
  const std::int64_t epoch = 4;
  const auto offsets = data::DataLoader::place_in_kept();
  std::string bytes;
  for (const auto& [name, offset] : offsets) bytes.resize(std::max(bytes.size(), offset + sizeof epoch));
  std::memcpy(bytes.data() + offsets.at("epoch"), &epoch, sizeof epoch);
  return bytes;
}

// A checkpoint of an mlp for digits, which is the best one there, in a run directory.
std::string write_best(const testing::ScratchFolder& folder, const Options& options, const Input& input) {
  torch::manual_seed(7);
  const auto model = make_model(options, input.task, {});
  const auto weights = checkpoint::state_dict(*model);
  checkpoint::Contents contents{.files = {{checkpoint::kModelName, checkpoint::bytes_of(weights)}}};
  contents.state.step = 3;
  contents.state.metric = 0.5;
  contents.state.kept["loader"] = kept_place();
  return checkpoint::write_checkpoint(folder.file("run/checkpoints"), contents, {});
}

Options of_digits(const std::string& run) {
  Options options{.model = "mlp", .dataset = "digits", .transforms = "none"};
  options.output_dir = run;
  options.eval_best = true;
  return options;
}

// As on two nodes, of which the second has no checkpoints.
TEST(EvaluateBest, IsReadByRank0Alone) {
  const testing::ScratchFolder folder;
  const Input input = make_input(of_digits(folder.file("run")));
  write_best(folder, of_digits(folder.file("run")), input);
  support::run_ranks(support::RankKind::nodes, 2, [&](const std::shared_ptr<comm::Group>& group) {
    const Options options = of_digits(folder.file(group->rank() == 0 ? "run" : "elsewhere"));
    const auto best = evaluate_best(options, input, *group, {}, at::kCPU);
    ASSERT_TRUE(best);
    EXPECT_EQ(best->step, 3);
    EXPECT_EQ(best->epoch, 5);
    torch::manual_seed(7);
    const auto same = make_model(options, input.task, {});
    const auto forward = [&](const at::Tensor& data) { return same->forward(data); };
    EXPECT_EQ(best->evaluation.loss, evaluate_task(options, input, *same, *group, forward).loss);
  });
}

TEST(EvaluateBest, WithoutOneThereIsNothingOnAnyRank) {
  const testing::ScratchFolder folder;
  const Options options = of_digits(folder.file("run"));
  const Input input = make_input(options);
  support::run_ranks(support::RankKind::nodes, 2, [&](const std::shared_ptr<comm::Group>& group) {
    EXPECT_FALSE(evaluate_best(options, input, *group, {}, at::kCPU));
  });
}

TEST(EvaluateBest, DamageIsToldOnAllRanksAndNamesTheTensor) {
  const testing::ScratchFolder folder;
  const Options options = of_digits(folder.file("run"));
  const Input input = make_input(options);
  const std::string file = write_best(folder, options, input) + "/" + checkpoint::kModelName;
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(-1, std::ios::end);
  bytes.put('\x55');
  bytes.close();
  support::run_ranks(support::RankKind::nodes, 2, [&](const std::shared_ptr<comm::Group>& group) {
    EXPECT_THAT(testing::usage_error([&] { evaluate_best(options, input, *group, {}, at::kCPU); }),
                AllOf(HasSubstr("step-00000003' is damaged"), HasSubstr("tensor '")));
  });
}

}  // namespace
}  // namespace lockstep::train
