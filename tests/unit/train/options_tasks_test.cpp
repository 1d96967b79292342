// Flags of tasks: losses, tables of numbers, lists of transforms.

#include <gmock/gmock.h>

#include "lockstep/train/options_head.h"
#include "lockstep/train/options_transforms.h"
#include "lockstep/train/rate_schedule.h"
#include "tests/unit/train/parsed_options.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

TEST(Tasks, TheDataSetDecidesOnTheLoss) {
  EXPECT_EQ(options({}).loss, "cross_entropy");
  const Options line = options({"--dataset", "line", "--model", "linear"});
  EXPECT_EQ(line.loss, "mse");
  EXPECT_EQ(line.checkpoints.monitor, "loss");
  EXPECT_TRUE(is_regression(line));
  const Options csv = options({"--dataset", "csv", "--data-path", "t.csv", "--model", "mlp", "--loss", "smooth_l1",
                               "--target", "a,b", "--columns", "1,-2", "--val-fraction", "0.5"});
  EXPECT_EQ(csv.loss, "smooth_l1");
  EXPECT_EQ(csv.transforms, "standardize");
  EXPECT_EQ(csv.target, "a,b");
  EXPECT_EQ(csv.columns, "1,-2");
  EXPECT_EQ(csv.val_fraction, 0.5);
  EXPECT_EQ(options({"--class-weights", "1,0.5,2"}).class_weights, (std::vector<double>{1, 0.5, 2}));
}

TEST(Tasks, WhatDoesNotFitTheTargetsIsRefused) {
  EXPECT_EQ(refusal({"--loss", "mse"}), "--loss mse with --dataset digits, whose targets are classes: cross_entropy");
  EXPECT_EQ(refusal({"--dataset", "line", "--model", "linear", "--loss", "cross_entropy"}),
            "--loss cross_entropy with --dataset line, whose targets are numbers: mse, l1 or smooth_l1");
  EXPECT_THAT(refusal({"--dataset", "line"}), HasSubstr("--model convnet is for pictures"));
  EXPECT_THAT(refusal({"--dataset", "line", "--model", "mlp", "--label-smoothing", "0.1"}),
              HasSubstr("--label-smoothing has no meaning for --dataset line"));
  EXPECT_THAT(refusal({"--dataset", "line", "--model", "mlp", "--transforms", "cifar"}),
              HasSubstr("none or standardize"));
  EXPECT_THAT(refusal({"--transforms", "standardize"}), HasSubstr("none or mnist"));
  EXPECT_THAT(refusal({"--dataset", "line", "--model", "mlp", "--patience", "1", "--monitor", "top1"}),
              HasSubstr("loss, mae or r2"));
  EXPECT_THAT(refusal({"--patience", "1", "--monitor", "r2"}), HasSubstr("loss, top1 or top5"));
  EXPECT_THAT(refusal({"--class-weights", "0,0"}), HasSubstr("at least one above 0"));
  EXPECT_THAT(refusal({"--class-weights", "1,x"}), HasSubstr("'x'"));
}

TEST(Tasks, FlagsOfATableAreForTables) {
  EXPECT_THAT(refusal({"--target", "y"}), HasSubstr("--target has no meaning for --dataset digits: it is for csv"));
  EXPECT_THAT(refusal({"--slice-rows"}),
              HasSubstr("--slice-rows has no meaning for --dataset digits: it is for csv and csv-images"));
  EXPECT_TRUE(options({"--dataset", "csv-images", "--data-path", "t", "--slice-rows"}).slice_rows);
  EXPECT_THAT(refusal({"--dataset", "csv-images", "--data-path", "t", "--slice-rows", "--ra-sampler"}),
              HasSubstr("--slice-rows with --ra-sampler: each says the order of the samples"));
  EXPECT_THAT(refusal({"--dataset", "csv-images", "--data-path", "t", "--val-fraction", "0.2"}),
              HasSubstr("it is for csv"));
  EXPECT_THAT(refusal({"--val-split", "y"}), HasSubstr("it is for imagefolder, csv-images and csv"));
  EXPECT_THAT(refusal({"--dataset", "csv", "--model", "mlp"}), HasSubstr("--dataset csv needs --data-path FILE"));
  EXPECT_THAT(refusal({"--dataset", "csv", "--model", "mlp", "--synthetic"}), HasSubstr("--dataset line is drawn"));
  EXPECT_THAT(refusal({"--dataset", "line", "--model", "mlp", "--data-path", "x"}), HasSubstr("reads no files"));
  EXPECT_THAT(refusal({"--dataset", "csv", "--data-path", "t", "--model", "mlp", "--val-fraction", "1"}),
              HasSubstr("'1'"));
  EXPECT_THAT(refusal({"--dataset", "csv", "--data-path", "t", "--model", "mlp", "--val-fraction", "0.1", "--no-eval"}),
              HasSubstr("--val-fraction has no meaning with --no-eval"));
  EXPECT_THAT(refusal({"--dataset", "imagefolder", "--synthetic", "--index-cache", "x"}),
              HasSubstr("--index-cache has no meaning with --synthetic"));
}

TEST(Heads, AreReadLayerByLayer) {
  const std::vector<HeadLayer> layers = head_layers("512,relu,dropout=0.25,3");
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[0].outputs, 512);
  EXPECT_EQ(layers[1].kind, HeadLayer::Kind::relu);
  EXPECT_EQ(layers[2].p, 0.25);
  EXPECT_EQ(layers[3].outputs, 3);
  for (const char* head : {"512,relux,3", "0", "dropout,3", "dropout=2,3", "3,,3", "-1", "1e3", "9999999"})
    EXPECT_THAT(refusal({"--head", head}), HasSubstr("is no layer: a number of outputs from 1 to")) << head;
  EXPECT_THAT(refusal({"--head", "512,relu"}), HasSubstr("it ends with a number"));
}

TEST(Best, WantsCheckpointsAndEvaluations) {
  EXPECT_THAT(refusal({"--eval-best"}), HasSubstr("without --save-every and --output-dir"));
  EXPECT_THAT(refusal({"--eval-best", "--save-every", "1", "--output-dir", "x", "--no-eval"}),
              HasSubstr("with --no-eval"));
  EXPECT_THAT(refusal({"--dataset", "imagefolder", "--data-path", "x", "--test-split", "test"}),
              HasSubstr("--test-split has no meaning without --eval-best"));
  EXPECT_FALSE(options({"--eval-best", "--save-every", "1", "--fast-dev-run"}).eval_best);
}

TEST(FastDevRun, TakesAStepWhateverIsAskedFor) {
  EXPECT_EQ(options({"--fast-dev-run", "--epochs", "0"}).epochs, 1);
  EXPECT_EQ(options({"--fast-dev-run"}).max_steps, 1);
  const Options warm = options({"--fast-dev-run", "--lr-warmup-epochs", "5", "--lr-scheduler", "cosineannealinglr"});
  EXPECT_NO_THROW(make_schedule(warm, 10, 1)) << "an epoch is left behind the warm-up";
  EXPECT_EQ(options({"--fast-dev-run", "--epochs", "90"}).epochs, 90);
}

TEST(SavedWeights, AreNamedAfterWhatTheyAre) {
  EXPECT_THAT(refusal({"--save-weights", "w.pt"}),
              HasSubstr("--save-weights 'w.pt': safetensors are written, so a name that ends in .safetensors"));
  EXPECT_THAT(refusal({"--model-ema", "--save-ema-weights", "w.pth"}), HasSubstr("--save-ema-weights 'w.pth'"));
  EXPECT_EQ(options({"--save-weights", "w.safetensors"}).save_weights, "w.safetensors");
}

TEST(TransformLists, AreReadStepByStep) {
  const std::vector<TransformStep> steps =
      transform_steps("auto_augment,resize=244x200,hflip=0.25,rotation=15,to_tensor,normalize=cifar10");
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_EQ(steps[0].word, "imagenet");
  EXPECT_TRUE(steps[0].kind->random);
  EXPECT_EQ(steps[1].height, 244);
  EXPECT_EQ(steps[1].width, 200);
  EXPECT_EQ(steps[2].number, 0.25);
  EXPECT_EQ(steps[3].number, 15);
  EXPECT_EQ(steps[5].word, "cifar10");
  EXPECT_EQ(transform_steps("resize=7")[0].width, 0);
  EXPECT_TRUE(is_transform_list("resize=7"));
  EXPECT_FALSE(is_transform_list("cifar"));
  EXPECT_EQ(options({"--transforms", "hflip,to_tensor"}).transforms, "hflip,to_tensor");
}

TEST(TransformLists, WhatIsWrongIsNamed) {
  EXPECT_THAT(refusal({"--transforms", "resise=7"}), HasSubstr("did you mean 'resize'"));
  EXPECT_THAT(refusal({"--transforms", "mnits"}), HasSubstr("mnist"));
  EXPECT_EQ(refusal({"--transforms", "resize"}), "--transforms: 'resize': a value expected, as resize=224");
  for (const char* size : {"resize=", "resize=0", "resize=3x", "resize=3x-1", "resize=99999", "resize=3x4x5"})
    EXPECT_THAT(refusal({"--transforms", size}), HasSubstr("a size expected")) << size;
  EXPECT_THAT(refusal({"--transforms", "hflip=2"}), HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(refusal({"--transforms", "hflip=nan"}), HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(refusal({"--transforms", "to_tensor=1"}), HasSubstr("it takes no value"));
  EXPECT_THAT(refusal({"--transforms", "auto_augment=none"}),
              HasSubstr("imagenet, cifar10, svhn, ra, ta_wide, augmix"));
  EXPECT_THAT(refusal({"--transforms", "to_tensor,hflip"}), HasSubstr("it stands behind to_tensor"));
  EXPECT_THAT(refusal({"--transforms", "normalize=mnist,to_tensor"}), HasSubstr("normalize"));
  EXPECT_THAT(refusal({"--transforms", "hflip,,vflip"}), HasSubstr("unknown step ''"));
  EXPECT_THAT(refusal({"--transforms", "hflip", "--auto-augment", "ra"}),
              HasSubstr("--auto-augment has no meaning for --transforms hflip"));
}

}  // namespace
}  // namespace lockstep::train
