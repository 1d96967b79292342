#include "lockstep/train/best.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/models/image_model.h"
#include "tests/support/image_files.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;

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

}  // namespace
}  // namespace lockstep::train
