// What a file of flags says and a stronger flag leaves without meaning is left out. All refusals of that kind are
// walked: beside files that say much, each flag is given with several values.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "lockstep/train/options_recipes.h"
#include "lockstep/train/options_sources.h"
#include "lockstep/train/options_table.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/train/parsed_options.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> files_that_say_much() {
  std::vector<std::string> files = {
      R"({"dataset": "imagefolder", "data_path": "x", "train_split": "Train", "val_split": "V", "test_split": "T",
          "cache_images": 5, "index_cache": "c", "transforms": "imagenet", "train_crop_size": 100,
          "val_resize_size": 120, "val_crop_size": 100, "interpolation": "bicubic", "auto_augment": "ra",
          "ra_magnitude": 5, "random_erase": 0.1, "mixup_alpha": 0.2, "cutmix_alpha": 0.2, "ra_sampler": true,
          "ra_reps": 2, "momentum": 0.5, "label_smoothing": 0.1, "class_weights": [1, 2], "model_ema": true,
          "model_ema_steps": 2, "model_ema_decay": 0.5, "save_ema_weights": "e", "lr_scheduler": "steplr",
          "lr_step_size": 3, "lr_gamma": 0.5, "lr_warmup_epochs": 2, "lr_warmup_method": "linear",
          "lr_warmup_decay": 0.5, "weights": "w", "weights_map": "a=b", "freeze": "a", "max_steps": 5, "epochs": 3,
          "max_time": 9, "patience": 2, "save_every": "1ep", "checkpoint_hist": 3, "checkpoint_best": 2,
          "monitor": "ema_loss", "stop_on": "SIGUSR1", "eval_best": true, "save_weights": "f", "timeline": "t",
          "channels_last": true})",
      R"({"dataset": "cifar10", "data_path": "x", "transforms": "cifar", "auto_augment": "augmix", "augmix_severity": 2,
          "lr_scheduler": "multisteplr", "lr_milestones": [2, 3], "lr_gamma": 0.5, "resume": "auto",
          "save_every": "1ep"})",
      R"({"dataset": "digits", "opt": "rmsprop", "momentum": 0.5, "lr_scheduler": "reducelronplateau", "lr_gamma": 0.5,
          "lr_patience": 2, "lr_min": 0.5, "patience": 3, "monitor": "loss", "head": "3,relu,10"})",
      R"({"dataset": "csv", "data_path": "x", "model": "mlp", "target": "a", "columns": "b", "val_fraction": 0.5,
          "slice_rows": true, "train_split": "a", "val_split": "b", "lr_scheduler": "cosineannealinglr",
          "lr_min": 0.5})",
      R"({"dataset": "csv-images", "data_path": "x", "slice_rows": true, "cache_images": 5, "parallel": "dp",
          "replicas": 2, "transforms": "resize=30x30", "interpolation": "bicubic"})",
      R"({"model": "mlp", "label_smoothing": 0.1, "class_weights": [1, 2], "mixup_alpha": 0.2, "cutmix_alpha": 0.2,
          "ra_sampler": true, "channels_last": true})",
      R"({"dataset": "mnist", "synthetic": true, "eval": false})"};
  for (const Recipe& recipe : recipes()) {
    nlohmann::json file = nlohmann::json::parse(recipe.text);
    if (file.contains("runs")) continue;
    if (file.at("dataset") != "line") file["data_path"] = "x";
    files.push_back(file.dump());
  }
  return files;
}

// What a command line may say of the flag.
std::vector<std::string> words_of(const flags::Flag& flag) {
  const std::string name = flags::name_of(flag);
  if (flag.value.word.empty()) return {name, name + "=0"};
  std::vector<std::string> values = {"0", "1", "0.5", "auto", "x=y", "512,relu,2"};
  if (!flag.value.choices.empty()) {
    values.clear();
    std::istringstream choices(flag.value.choices);
    for (std::string choice; std::getline(choices, choice, '|');) values.push_back(choice);
  }
  std::vector<std::string> words;
  for (const std::string& value : values) try {
      flag.value.read(name, value);
      words.push_back(name + "=" + value);
    } catch (const UsageError&) {  // it takes others
    }
  return words;
}

std::vector<std::string> all_words() {
  static Options place;  // the flags refer to it
  std::vector<std::string> all;
  for (const flags::Group& group : table_of(place).groups)
    for (const flags::Flag& flag : group.flags) {
      const std::string name = flags::name_of(flag);
      if (name == "--config" || name == "--recipe" || name == "--output-dir") continue;
      const std::vector<std::string> words = words_of(flag);
      all.insert(all.end(), words.begin(), words.end());
    }
  return all;
}

TEST(Refusals, NoneIsOfAFlagThatOnlyAFileGivesAndAStrongerOneLeavesWithoutMeaning) {
  const testing::ScratchFolder folder;
  std::set<std::string> left_out;
  for (const std::string& text : files_that_say_much()) {
    const std::string path = folder.write("config.json", text);
    options({"--config", path.c_str(), "--output-dir", "x"});  // it says nothing without meaning by itself
    for (const std::string& word : all_words()) try {
        const Options o = parse({"--config", path.c_str(), "--output-dir", "x", word.c_str()}).options;
        left_out.insert(o.left_out.begin(), o.left_out.end());
      } catch (const NoMeaning& refused) {
        EXPECT_EQ(refused.flag(), word.substr(0, word.find('='))) << word << ": " << refused.what() << "\n" << text;
      } catch (const UsageError&) {  // a contradiction, or something is missing
      }
  }
  for (const char* flag :
       {"--augmix-severity",  "--cache-images",    "--channels-last",    "--checkpoint-best",  "--checkpoint-hist",
        "--class-weights",    "--columns",         "--cutmix-alpha",     "--data-path",        "--epochs",
        "--eval-best",        "--freeze",          "--index-cache",      "--interpolation",    "--label-smoothing",
        "--lr-gamma",         "--lr-milestones",   "--lr-min",           "--lr-patience",      "--lr-scheduler",
        "--lr-step-size",     "--lr-warmup-decay", "--lr-warmup-epochs", "--lr-warmup-method", "--max-steps",
        "--max-time",         "--mixup-alpha",     "--model-ema",        "--model-ema-decay",  "--model-ema-steps",
        "--momentum",         "--monitor",         "--no-eval",          "--patience",         "--ra-magnitude",
        "--ra-reps",          "--ra-sampler",      "--random-erase",     "--replicas",         "--resume",
        "--save-ema-weights", "--save-every",      "--save-weights",     "--slice-rows",       "--stop-on",
        "--synthetic",        "--target",          "--test-split",       "--timeline",         "--train-crop-size",
        "--train-split",      "--val-crop-size",   "--val-fraction",     "--val-resize-size",  "--val-split"})
    EXPECT_TRUE(left_out.contains(flag)) << flag << ": the walk no longer comes to it";
}

class LeftOut : public ::testing::Test {
 protected:
  Options with(const std::string& text, const std::vector<const char*>& more) {
    const std::string path = folder_.write("config.json", text);
    std::vector<const char*> flags = {"--config", path.c_str()};
    flags.insert(flags.end(), more.begin(), more.end());
    return options(flags);
  }

  testing::ScratchFolder folder_;
};

TEST_F(LeftOut, ASwitchThatIsTakenBackTakesWhatNeedsItAlong) {
  const Options o = with(R"({"model_ema": true, "model_ema_steps": 2, "save_ema_weights": "e"})", {"--model-ema=0"});
  EXPECT_THAT(o.left_out, ElementsAre("--model-ema-steps", "--save-ema-weights"));
  EXPECT_EQ(o.model_ema.steps, Options().model_ema.steps);
  EXPECT_EQ(o.save_ema_weights, "");
}

TEST_F(LeftOut, RecipesTakeTheFlagsThatChangeThem) {
  const Options unseen =
      options({"--recipe", "finetune-resnet34", "--data-path", "x", "--output-dir", "y", "--no-eval"});
  EXPECT_THAT(unseen.left_out,
              ElementsAre("--val-split", "--lr-scheduler", "--lr-min", "--lr-patience", "--eval-best"));
  EXPECT_EQ(unseen.lr_schedule.scheduler, "constant");
  const Options evaluated = options({"--recipe", "finetune-resnet34", "--data-path", "x", "--test-only"});
  EXPECT_TRUE(evaluated.test_only);
  EXPECT_EQ(evaluated.val_split, "Validation");
  EXPECT_THAT(options_as_flags(evaluated), ::testing::Not(::testing::HasSubstr("--save-every")));
  EXPECT_THAT(options({"--recipe", "mnist-torchrun", "--synthetic", "--test-only"}).left_out,
              ElementsAre("--epochs", "--save-every", "--checkpoint-hist", "--resume"));
  const Options unsaved = options({"--recipe", "mnist-torchrun", "--synthetic", "--save-every=0", "--output-dir", "y"});
  EXPECT_THAT(unsaved.left_out, ElementsAre("--checkpoint-hist"));
  const Options anew = options({"--recipe", "mnist-torchrun", "--synthetic", "--output-dir", "y", "--overwrite"});
  EXPECT_THAT(anew.left_out, ElementsAre("--resume"));
}

// The file of --config goes before the recipe.
TEST_F(LeftOut, AConfigOverrulesARecipe) {
  const std::string path = folder_.write("own.json", R"({"opt": "adam"})");
  const std::vector<const char*> flags = {"--recipe", "cifar100-resnet18", "--synthetic", "--config", path.c_str()};
  EXPECT_THAT(options(flags).left_out, ElementsAre("--momentum"));
  const std::string wrong = folder_.write("wrong.json", R"({"lr_scheduler": "constant", "lr_step_size": 3})");
  EXPECT_EQ(refusal({"--recipe", "mnist-single", "--synthetic", "--config", wrong.c_str()}),
            "--lr-step-size has no meaning without --lr-scheduler steplr");
}

TEST_F(LeftOut, WhatSomebodyAskedForIsRefused) {
  EXPECT_EQ(refusal({"--recipe", "mnist-single", "--synthetic", "--lr-step-size", "3"}),
            "--lr-step-size has no meaning without --lr-scheduler steplr");
  setenv("LOCKSTEP_MONITOR", "loss", 1);
  EXPECT_EQ(refusal({"--no-eval", "--output-dir", "x", "--save-every", "1"}),
            "--monitor has no meaning with --no-eval: nothing is measured");
  unsetenv("LOCKSTEP_MONITOR");
  EXPECT_THAT(options({}).left_out, IsEmpty());
}

}  // namespace
}  // namespace lockstep::train
