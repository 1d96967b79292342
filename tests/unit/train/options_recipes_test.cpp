#include "lockstep/train/options_recipes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/train/rate_schedule.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/train/parsed_options.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

class Recipes : public ::testing::Test {
 protected:
  std::string config(const std::string& text) const {
    const std::string path = folder_.file("config.json");
    std::ofstream(path) << text;
    return path;
  }

  testing::ScratchFolder folder_;
};

// A variable of the environment while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST_F(Recipes, EachIsACommandLineThatIsAccepted) {
  ASSERT_GE(recipes().size(), 7u);
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    EXPECT_FALSE(recipe.about.empty());
    if (const std::vector<RecipeRun> runs = runs_of(recipe); !runs.empty()) {
      EXPECT_THAT(refusal({"--recipe", recipe.name.c_str()}), HasSubstr("is several runs, one after the other"));
      for (const RecipeRun& run : runs) {
        const std::string file = config(run.text);
        std::vector<const char*> words = {"--config", file.c_str()};
        if (run.text.find("synthetic") == std::string::npos) words.insert(words.end(), {"--data-path", "x"});
        const auto got = nlohmann::json::parse(options_json(options(words)));
        const auto wanted = nlohmann::json::parse(run.text);
        for (const auto& [key, value] : wanted.items()) EXPECT_EQ(got.value(key, value), value) << key;
      }
      continue;
    }
    std::vector<const char*> flags = {"--recipe", recipe.name.c_str()};
    if (recipe.text.find("save_every") != std::string::npos) flags.insert(flags.end(), {"--output-dir", "x"});
    if (recipe.text.find("\"line\"") == std::string::npos) flags.insert(flags.end(), {"--data-path", "x"});
    const Options o = options(flags);
    const nlohmann::json wanted = nlohmann::json::parse(recipe.text), got = nlohmann::json::parse(options_json(o));
    for (const auto& [key, value] : wanted.items()) {
      EXPECT_EQ(got.value(key, value), value) << key;  // some are not recorded
    }
    EXPECT_EQ(o.processes(), wanted.value("nproc_per_node", 1));
  }
}

TEST_F(Recipes, TheCommandLineGoesBeforeEnvironmentConfigAndRecipe) {
  const std::string path = config(R"({"lr": 0.2, "epochs": 3, "amp": "bf16"})");
  const Variable batch("LOCKSTEP_BATCH_SIZE", "7"), epochs("LOCKSTEP_EPOCHS", "4");
  const Options o = options({"--recipe", "mnist-single", "--config", path.c_str(), "--epochs", "5", "--synthetic"});
  EXPECT_EQ(o.epochs, 5);
  EXPECT_EQ(o.batch_size, 7);
  EXPECT_EQ(o.lr, 0.2);
  EXPECT_EQ(o.amp, "bf16");
  EXPECT_EQ(o.model, "convnet");
  EXPECT_EQ(options_as_flags(o),
            "--nproc-per-node 1 --epochs 5 --dataset mnist --synthetic --transforms none --batch-size 7 --lr 0.2 "
            "--amp bf16 --channels-last");
}

TEST_F(Recipes, TheCommandLineSwitchesOffWhatStandsBelow) {
  const Options recipe = options({"--recipe", "cifar100-resnet18", "--synthetic", "--channels-last=0"});
  EXPECT_FALSE(recipe.channels_last);
  EXPECT_THAT(options_as_flags(recipe), ::testing::Not(HasSubstr("--channels-last"))) << "nor is it printed";
  const std::string record = config(options_json(recipe));
  EXPECT_FALSE(options({"--config", record.c_str()}).channels_last) << "the record of the run repeats it";
  EXPECT_FALSE(options({"--recipe", "cifar100-resnet18", "--config", record.c_str()}).channels_last);
  const Variable exported("LOCKSTEP_SYNC_BN", "1");
  EXPECT_TRUE(options({}).sync_bn);
  EXPECT_FALSE(options({"--sync-bn=0"}).sync_bn);
  EXPECT_FALSE(options({"--sync-bn=0"}).by_environment);
}

// What contradicts a switch of a file can be had without it.
TEST_F(Recipes, AContradictionEndsWithTheSwitch) {
  const std::string path = config(R"({"save_every": "1ep", "fuse": true})");
  const std::vector<const char*> flags = {"--config", path.c_str(), "--output-dir", "x"};
  const auto with = [&](std::vector<const char*> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return more;
  };
  EXPECT_THAT(refusal(with({"--sync-bn"})), HasSubstr("--fuse with --sync-bn"));
  EXPECT_TRUE(options(with({"--sync-bn", "--fuse=0"})).sync_bn);
}

TEST_F(Recipes, TheRecordOfARunIsAConfigThatRepeatsIt) {
  const std::vector<std::vector<const char*>> runs = {
      {"--recipe", "cifar100-resnet18", "--synthetic"},
      {"--opt", "adam", "--lr", "0.01", "--no-eval", "--max-steps", "3"},
      {"--dataset", "line", "--model", "linear"},
      {"--dataset", "line", "--model", "linear", "--no-eval", "--loss", "l1"},
      {"--model-ema", "--global-batch-size", "64", "--logical-shards", "4", "--mixup-alpha", "0.2"}};
  for (const auto& flags : runs) {
    const Options o = options(flags);
    EXPECT_EQ(options_json(options({"--config", config(options_json(o)).c_str()})), options_json(o)) << flags[1];
  }
}

TEST_F(Recipes, WhatLosesItsMeaningByAFlagFallsBackToItsDefault) {
  const std::vector<const char*> cifar = {"--recipe", "cifar100-resnet18", "--synthetic"};
  const auto with = [](std::vector<const char*> flags, const std::vector<const char*>& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return options(flags);
  };
  const Options cosine = with(cifar, {"--lr-scheduler", "cosineannealinglr"});
  EXPECT_EQ(cosine.lr_schedule.milestones, Options().lr_schedule.milestones);
  EXPECT_EQ(cosine.lr_schedule.gamma, Options().lr_schedule.gamma);
  EXPECT_EQ(with(cifar, {"--opt", "adam"}).momentum, options({"--opt", "adam"}).momentum);
  const std::string record =
      config(R"({"lr_scheduler": "steplr", "lr_step_size": 7, "epochs": 3, "patience": 2, "monitor": "loss"})");
  const Options constant = options({"--config", record.c_str(), "--lr-scheduler", "constant", "--no-eval"});
  EXPECT_EQ(constant.lr_schedule.step_size, Options().lr_schedule.step_size);
  EXPECT_EQ(constant.checkpoints.monitor, Options().checkpoints.monitor);
  const std::string epochs = config(R"({"epochs": 3})");
  EXPECT_EQ(options({"--config", epochs.c_str(), "--test-only"}).epochs, std::nullopt);
  const std::string wrong = config(R"({"lr_scheduler": "constant", "lr_step_size": 7})");
  EXPECT_THAT(refusal({"--config", wrong.c_str()}), HasSubstr("--lr-step-size has no meaning without"));
  EXPECT_THAT(refusal({"--lr-step-size", "7", "--lr-scheduler", "constant"}), HasSubstr("has no meaning without"));
}

TEST_F(Recipes, ABatchThatIsAskedForGoesBeforeThatOfAFile) {
  const std::string whole = config(R"({"global_batch_size": 40, "logical_shards": 2})");
  const Options each = options({"--config", whole.c_str(), "--batch-size", "7"});
  EXPECT_EQ(each.batch_size, 7);
  EXPECT_EQ(each.global_batch_size, std::nullopt);
  EXPECT_EQ(each.logical_shards, 2);
  const Options all = options({"--recipe", "mnist-single", "--synthetic", "--global-batch-size", "30"});
  EXPECT_EQ(all.batch_size, std::nullopt);
  EXPECT_EQ(all.global_batch_size, 30);
}

// The reference counts epochs from 1 and sets its MultiStepLR of 60, 120, 160 to an epoch's number before that epoch;
// the first one is its warm-up.
TEST_F(Recipes, Cifar100HasTheRateOfItsReferenceInEveryEpoch) {
  for (const char* name : {"cifar100-resnet18", "cifar100-resnet18-dp", "cifar100-resnet18-sync-bn",
                           "cifar100-resnet18-amp", "cifar100-methods"}) {
    const nlohmann::json recipe = nlohmann::json::parse(find_recipe(name).text);
    const Options o{.epochs = recipe.at("epochs"),
                    .lr = recipe.at("lr"),
                    .lr_schedule = {.scheduler = recipe.at("lr_scheduler"),
                                    .milestones = recipe.at("lr_milestones"),
                                    .gamma = recipe.at("lr_gamma"),
                                    .warmup_epochs = recipe.at("lr_warmup_epochs"),
                                    .warmup_method = recipe.at("lr_warmup_method")}};
    const Schedule schedule = make_schedule(o, 1, 200);
    for (std::int64_t epoch = 2; epoch <= 200; ++epoch)
      EXPECT_NEAR(schedule(epoch), 0.1 * std::pow(0.2, (epoch >= 60) + (epoch >= 120) + (epoch >= 160)), 1e-12)
          << name << " " << epoch;
  }
}

TEST_F(Recipes, WhatIsWrongIsNamed) {
  EXPECT_THAT(refusal({"--recipe", "mnist-sinlge"}), HasSubstr("did you mean 'mnist-single'?"));
  EXPECT_THAT(refusal({"--config", folder_.file("none").c_str()}), HasSubstr("No such file"));
  EXPECT_THAT(refusal({"--config", config(R"({"batchsize": 3})").c_str()}),
              HasSubstr("config.json': there is no flag 'batchsize': did you mean 'batch_size'?"));
  EXPECT_THAT(refusal({"--config", config(R"({"recipe": "mnist-single"})").c_str()}),
              HasSubstr("'recipe' stands on the command line or in the environment"));
  const Variable wrong("LOCKSTEP_EPOCHS", "many");
  EXPECT_THAT(refusal({"--model", "mlp"}), HasSubstr("LOCKSTEP_EPOCHS 'many': not an integer"));
}

}  // namespace
}  // namespace lockstep::train
