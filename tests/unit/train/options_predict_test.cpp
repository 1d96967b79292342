#include "lockstep/train/options_predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/usage_error.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ParsedPredict predict_flags(std::vector<const char*> flags) {
  flags.insert(flags.begin(), "lockstep predict");
  return parse_predict_options(int(flags.size()), flags.data());
}

std::string predict_refusal(const std::vector<const char*>& flags) {
  return testing::usage_error([&] { predict_flags(flags); });
}

TEST(PredictOptions, AreThoseOfTrainThatSayWhatTheModelSees) {
  const PredictOptions options =
      predict_flags({"--weights", "w.safetensors", "--output", "p.csv", "-n", "2", "--model", "resnet18_cifar",
                     "--dataset", "cifar10", "--data-path", "data", "--amp", "bf16", "--channels-last", "--arithmetic",
                     "portable", "--device", "CUDA:1"})
          .options;
  EXPECT_EQ(options.output, "p.csv");
  EXPECT_EQ(options.run.weights, "w.safetensors");
  EXPECT_EQ(options.run.processes(), 2);
  EXPECT_EQ(options.run.model, "resnet18_cifar");
  EXPECT_EQ(options.run.dataset, "cifar10");
  EXPECT_EQ(options.run.transforms, "cifar") << "as train has it by default";
  EXPECT_EQ(options.run.amp, "bf16");
  EXPECT_TRUE(options.run.channels_last);
  EXPECT_EQ(options.run.arithmetic, "portable");
  EXPECT_EQ(options.run.device, "cuda:1");
}

TEST(PredictOptions, HelpHasTheRowsOfTrainAndNoOthers) {
  const std::string help = predict_flags({"--help"}).text;
  for (const char* flag :
       {"--nproc-per-node", "--model", "--weights", "--dataset", "--data-path", "--output", "--transforms",
        "--val-resize-size", "--val-crop-size", "--interpolation", "--index-cache", "--workers", "--amp",
        "--arithmetic", "--channels-last", "--device", "--threads", "--bind-to", "--timeout"})
    EXPECT_THAT(help, HasSubstr(flag));
  for (const char* flag : {"--lr", "--epochs", "--train-crop-size", "--output-dir", "--no-eval"})
    EXPECT_THAT(help, Not(HasSubstr(flag)));
}

TEST(PredictOptions, WhatIsMissingOrMeaninglessIsRefused) {
  EXPECT_THAT(predict_refusal({"--output", "p.csv"}), HasSubstr("--weights FILE is missing"));
  EXPECT_THAT(predict_refusal({"--weights", "w"}), HasSubstr("--output FILE is missing"));
  EXPECT_EQ(predict_refusal({"--weights", "w", "--output", "p.safetensors"}),
            "predict: --output 'p.safetensors': a name that ends in .csv expected");
  EXPECT_THAT(predict_refusal({"--weights", "w", "--output", "p.csv", "--val-crop-size", "3"}),
              HasSubstr("--val-crop-size has no meaning"));
  EXPECT_THAT(predict_refusal({"--weights", "w", "--output", "p.csv", "--lr", "3"}), HasSubstr("--lr"));
  EXPECT_THAT(predict_refusal({"--weights", "w", "--output", "p.csv", "--dataset", "mnist"}),
              HasSubstr("--data-path DIR"));
  EXPECT_THAT(predict_refusal({"--weights", "w", "--output", "p.csv", "--device", "cdua"}),
              HasSubstr("unknown device 'cdua': did you mean 'cuda'?"));
}

}  // namespace
}  // namespace lockstep::train
