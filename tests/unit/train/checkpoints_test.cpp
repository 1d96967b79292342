#include "lockstep/train/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/usage_error.h"
#include "tests/unit/train/parsed_options.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;
using Unit = SaveEvery::Unit;

SaveEvery every(const char* text) {
  SaveEvery found;
  save_every(found).read("--save-every", text);
  return found;
}

TEST(SaveEvery, CountsStepsSecondsOrEpochs) {
  EXPECT_EQ(every("100"), (SaveEvery{Unit::steps, 100}));
  EXPECT_EQ(every("30s"), (SaveEvery{Unit::seconds, 30}));
  EXPECT_EQ(every("2ep"), (SaveEvery{Unit::epochs, 2}));
  EXPECT_EQ(every("0").unit, Unit::never);
  for (const char* wrong : {"", "x", "-1", "2e", "30 s", "1.5ep", "99999999999999999999"})
    EXPECT_THAT(testing::usage_error([&] { every(wrong); }),
                HasSubstr("--save-every '" + std::string(wrong) + "': wanted steps (100), seconds (30s) or epochs"));
  SaveEvery place{Unit::epochs, 2};
  EXPECT_EQ(save_every(place).json(), "\"2ep\"");
}

TEST(PartChange, NamesTheFlagByWhichAPartComesOrGoes) {
  EXPECT_EQ(part_change({"loader"}, {"loader", "scaler"}),
            "it has no 'scaler', which this run has by --amp fp16: leave that out");
  EXPECT_EQ(part_change({"loader", "judgement"}, {"loader"}),
            "it has a 'judgement', which this run has only by --patience or --lr-scheduler reducelronplateau: "
            "give that");
  EXPECT_EQ(part_change({"scaler"}, {"judgement"}),
            "it has a 'scaler', which this run has only by --amp fp16: give that; it has no 'judgement', which this "
            "run has by --patience or --lr-scheduler reducelronplateau: leave that out");
  EXPECT_EQ(part_change({"judgement", "other"}, {"judgement", "loader"}), "") << "no flag switches those";
}

TEST(DeviceChange, TellsOfAnotherTypeOfDevice) {
  EXPECT_EQ(device_change(R"({"device":"cpu"})", "cuda:1"), "device was cpu, now cuda");
  EXPECT_EQ(device_change(R"({"device":"cuda"})", "cpu"), "device was cuda, now cpu");
  EXPECT_EQ(device_change(R"({"device":"cuda"})", "cuda:3"), "");
  EXPECT_EQ(device_change(R"({"lr":1})", "cuda"), "device was cpu, now cuda") << "of before there were GPUs";
  EXPECT_EQ(device_change(R"({"lr":1})", "cpu"), "");
  EXPECT_EQ(device_change("null", "cuda"), "") << "nothing is resumed";
}

TEST(SaveEvery, IsDue) {
  const StepPlace inside{.epoch = 1, .batch = 2}, end{.epoch = 1, .batch = 3, .ends_epoch = true};
  EXPECT_FALSE(is_due(every("0"), 8, end, 1e9));
  EXPECT_TRUE(is_due(every("4"), 8, inside, 0));
  EXPECT_FALSE(is_due(every("4"), 7, end, 1e9));
  EXPECT_TRUE(is_due(every("2ep"), 8, end, 0));
  EXPECT_FALSE(is_due(every("2ep"), 7, inside, 1e9));
  EXPECT_FALSE(is_due(every("3ep"), 8, end, 1e9));
  EXPECT_TRUE(is_due(every("30s"), 1, inside, 30));
  EXPECT_FALSE(is_due(every("30s"), 1, inside, 29.9));
}

TEST(Checkpoints, TheBestIsByWhatIsMonitored) {
  const EvalEvent event{.evaluation = {.loss = 1, .top1 = 2, .top5 = 5},
                        .ema = Evaluation{.loss = 3, .top1 = 4, .top5 = 6}};
  EXPECT_EQ(monitored({.monitor = "loss"}, event), 1);
  EXPECT_EQ(monitored({.monitor = "top1"}, event), 2);
  EXPECT_EQ(monitored({.monitor = "top5"}, event), 5);
  EXPECT_EQ(monitored({.monitor = "ema_top5"}, event), 6);
  EXPECT_EQ(monitored({.monitor = "ema_loss"}, event), 3);
  EXPECT_EQ(monitored({.monitor = "ema_top1"}, event), 4);
}

TEST(Checkpoints, TheBestOfARegressionIsByItsNumbers) {
  const EvalEvent event{.evaluation = {.loss = 1, .errors = Errors{.mae = 2, .r2 = 3}},
                        .ema = Evaluation{.loss = 4, .errors = Errors{.mae = 5, .r2 = 6}}};
  EXPECT_EQ(monitored({.monitor = "loss"}, event), 1);
  EXPECT_EQ(monitored({.monitor = "mae"}, event), 2);
  EXPECT_EQ(monitored({.monitor = "r2"}, event), 3);
  EXPECT_EQ(monitored({.monitor = "ema_loss"}, event), 4);
  EXPECT_EQ(monitored({.monitor = "ema_mae"}, event), 5);
  EXPECT_EQ(monitored({.monitor = "ema_r2"}, event), 6);
  EXPECT_TRUE(smaller_is_better({.monitor = "ema_mae"}));
  EXPECT_FALSE(smaller_is_better({.monitor = "r2"}));
}

TEST(Checkpoints, TheRateAndWhatWasDecidedStandThereInWords) {
  const Options step = options(
      {"--lr", "0.5", "--lr-scheduler", "steplr", "--lr-step-size", "3", "--epochs", "9", "--lr-warmup-epochs", "1"});
  EXPECT_EQ(nlohmann::json::parse(schedule_json(step, 9)), nlohmann::json({{"lr", 0.5},
                                                                           {"lr_scheduler", "steplr"},
                                                                           {"lr_step_size", 3},
                                                                           {"lr_gamma", 0.1},
                                                                           {"lr_warmup_epochs", 1},
                                                                           {"lr_warmup_method", "constant"},
                                                                           {"lr_warmup_decay", 0.01}}));
  EXPECT_EQ(schedule_json(options({}), 1), R"({"lr":0.001,"lr_scheduler":"constant","lr_warmup_epochs":0})");
  const amp::GradScaler off({.enabled = false}), on({.init_scale = 8});
  EXPECT_EQ(standing_json({}, {}, off), "{}");
  const Options asked = options({"--lr-scheduler", "reducelronplateau", "--patience", "4"});
  EXPECT_EQ(nlohmann::json::parse(standing_json(asked, {.plateau = {.best = 0.5, .reductions = 2}, .worse = 1}, on)),
            nlohmann::json({{"plateau", {{"best", 0.5}, {"bad_evaluations", 0}, {"reductions", 2}}},
                            {"patience", {{"monitor", "top1"}, {"best", nullptr}, {"evaluations_since", 1}}},
                            {"loss_scale", 8.0}}));
}

TEST(Checkpoints, HowAStepIsComputedStandsThere) {
  const auto one = nlohmann::json::parse(training_json(options({})));
  EXPECT_EQ(one.size(), 22u) << "each name is a flag's: " << one;
  const auto other = nlohmann::json::parse(
      training_json(options({"--opt", "sgd", "--lr", "0.5", "--epochs", "9", "--momentum", "0.25", "--weight-decay",
                             "0.5", "--amp", "bf16", "--label-smoothing", "0.125", "--print-freq", "3"})));
  std::map<std::string, nlohmann::json> changed;
  for (const auto& [key, value] : other.items())
    if (value != one[key]) changed[key] = value;
  EXPECT_EQ(changed, (std::map<std::string, nlohmann::json>{
                         {"momentum", 0.25}, {"weight_decay", 0.5}, {"amp", "bf16"}, {"label_smoothing", 0.125}}));
}

// It may come of --max-steps, and the average of its epochs and batch.
TEST(Checkpoints, TheLengthOfTheRunStandsThereWhereTheRateOrTheAverageFollowsIt) {
  const Options cosine = options({"--lr-scheduler", "cosineannealinglr", "--max-steps", "22"});
  EXPECT_THAT(schedule_json(cosine, 2), HasSubstr(R"("epochs_in_run":2)"));
  const Options averaged = options({"--model-ema", "--model-ema-decay", "0.9", "--model-ema-steps", "2"});
  EXPECT_EQ(nlohmann::json::parse(average_json(averaged, 2, 8)), nlohmann::json({{"decay", 0.95}, {"steps", 2}}));
  EXPECT_EQ(average_json(options({}), 2, 8), "{}");
}

TEST(Checkpoints, TheNewestAndTheBestStay) {
  const Options given = options({"--output-dir", "d", "--save-every", "1ep", "--checkpoint-hist", "2",
                                 "--checkpoint-best", "3", "--monitor", "loss"});
  EXPECT_EQ(retention_of(given.checkpoints), (checkpoint::Retention{.keep = 2, .best = 3, .smaller_is_better = true}));
  EXPECT_EQ(retention_of({}), (checkpoint::Retention{.keep = 10, .best = 1}));
}

// All processes of a run that saves shares have a part in it, behind the same step; and one that has lost a share goes
// back to its own.
TEST(CheckpointFlags, SharesAreSavedByAllTogether) {
  EXPECT_EQ(refusal({"--zero1", "--output-dir", "d", "--save-every", "30s"}),
            "--zero1 with --save-every in seconds, which each process counts for itself: steps (100) or epochs (2ep) "
            "are wanted, behind which all save together");
  EXPECT_THAT(refusal({"--zero1", "--output-dir", "d", "--save-every", "1ep", "--overwrite"}),
              HasSubstr("--zero1 with --overwrite and --save-every: "));
  EXPECT_EQ(options({"--zero1", "--output-dir", "d", "--save-every", "1ep"}).zero1, "shares");
  EXPECT_EQ(options({"--zero1", "--output-dir", "d", "--overwrite"}).zero1, "shares");
  EXPECT_EQ(options({"--zero1=copied"}).zero1, "copied");
  EXPECT_EQ(refusal({"--parallel", "dp", "--replicas", "2", "--zero1"}),
            "--zero1 with --parallel dp, which is one process on one node");
  EXPECT_EQ(refusal({"--parallel", "dp", "--replicas", "2", "--overlap-bytes", "0"}),
            "--overlap-bytes with --parallel dp, which is one process on one node");
}

TEST(CheckpointFlags, WhatMeansNothingIsRefused) {
  EXPECT_THAT(refusal({"--save-every", "5"}), HasSubstr("--save-every needs --output-dir DIR"));
  EXPECT_THAT(refusal({"--output-dir", "d", "--checkpoint-best", "2"}), HasSubstr("no meaning without --save-every"));
  EXPECT_THAT(refusal({"--output-dir", "d", "--save-every", "1ep", "--no-eval", "--checkpoint-best", "2"}),
              HasSubstr("--checkpoint-best has no meaning with --no-eval"));
  EXPECT_THAT(refusal({"--output-dir", "d", "--monitor", "loss"}), HasSubstr("no meaning without --save-every"));
  EXPECT_THAT(refusal({"--output-dir", "d", "--save-every", "1ep", "--no-eval", "--monitor", "loss"}),
              HasSubstr("--monitor has no meaning with --no-eval"));
  EXPECT_THAT(refusal({"--output-dir", "d", "--save-every", "1ep", "--monitor", "ema_loss"}),
              HasSubstr("--monitor ema_loss has no meaning without --model-ema"));
  EXPECT_THAT(refusal({"--resume", "auto"}), HasSubstr("--resume auto needs --output-dir DIR"));
  EXPECT_THAT(refusal({"--output-dir", "d", "--overwrite", "--resume", "last"}),
              HasSubstr("--resume last has no meaning with --overwrite"));
  EXPECT_THAT(refusal({"--resume", "last", "--test-only", "--output-dir", "d"}),
              HasSubstr("--resume last has no meaning with --test-only: the path of a run or of a checkpoint has"));
  EXPECT_THAT(refusal({"--resume", "d", "--test-only", "--weights", "w"}),
              HasSubstr("--weights has no meaning with --test-only and --resume"));
  EXPECT_EQ(options({"--resume", "d", "--test-only"}).checkpoints.resume, "d");
  EXPECT_EQ(options({"--resume", "d", "--test-only", "--fast-dev-run"}).checkpoints.resume, "d");
  EXPECT_EQ(options({"--resume", "d", "--fast-dev-run"}).checkpoints.resume, "");
  EXPECT_THAT(refusal({"--resume", "d", "--epochs", "0"}), HasSubstr("nothing would be trained"));
  EXPECT_THAT(refusal({"--resume", "d", "--max-steps", "0"}), HasSubstr("nothing would be trained"));
  EXPECT_EQ(options({"--resume", "some/folder"}).checkpoints.resume, "some/folder");
}

}  // namespace
}  // namespace lockstep::train
