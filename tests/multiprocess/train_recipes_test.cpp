// Recipes, from their names to their results; limits, and pictures made of nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/train_run.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::Job;
using testing::Words;
using testing::operator+;

class TrainRecipes : public ::testing::Test {
 protected:
  std::string ended(const Words& flags, const Words& variables = {}) const {
    Job job(Words{LOCKSTEP_PROGRAM, "train"} + flags, variables);
    EXPECT_EQ(job.wait(), 0) << job.err();
    return job.out() + job.err();
  }
  std::string metrics(const std::string& run) const { return testing::read_file(folder_.file(run + "/metrics.jsonl")); }

  testing::ScratchFolder folder_;
};

// Those for large pictures would take minutes.
TEST_F(TrainRecipes, EachRunsAsItStands) {
  Job list(Words{LOCKSTEP_PROGRAM, "recipes"});
  ASSERT_EQ(list.wait(), 0);
  std::vector<std::string> names;
  for (const std::string& line : testing::lines(list.out()))
    if (!line.starts_with(" ")) names.push_back(line);
  ASSERT_GE(names.size(), 7u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const Words smaller = name.starts_with("imagenet")   ? Words{"--global-batch-size", "2", "--no-eval"}
                          : name.starts_with("cifar100") ? Words{"--batch-size", "2", "--no-eval"}
                                                         : Words{};
    const std::string said = ended(Words{"--recipe", name, "--fast-dev-run", "--synthetic"} + smaller);
    EXPECT_THAT(said, HasSubstr("recipe " + name + ": --"));
    EXPECT_THAT(said, HasSubstr("weights "));
  }
}

TEST_F(TrainRecipes, TheRecordOfARunRepeatsItsBits) {
  const std::string set = testing::write_mnist(folder_);
  const std::string first = folder_.file("first"), second = folder_.file("second");
  ended({"--recipe", "mnist-mixed-precision", "--data-path", set, "--max-steps", "4", "--batch-size", "20",
         "--output-dir", first, "--no-eval"},
        {"LOCKSTEP_SEED=3"});
  ended({"-n", "2", "--config", first + "/config.json", "--output-dir", second});
  EXPECT_EQ(testing::weights_hash(metrics("second")), testing::weights_hash(metrics("first")));
  EXPECT_EQ(nlohmann::json::parse(testing::read_file(first + "/config.json")).at("seed"), 3);
}

TEST_F(TrainRecipes, LimitsCutEpochsAndEvaluations) {
  const Words flags = {"--dataset",
                       "mnist",
                       "--synthetic",
                       "--model",
                       "mlp",
                       "--batch-size",
                       "10",
                       "--epochs",
                       "3",
                       "--limit-train-batches",
                       "2",
                       "--limit-val-batches",
                       "1",
                       "--print-freq",
                       "1"};
  ended(flags + Words{"--output-dir", folder_.file("run")});
  std::vector<std::string> evaluated;
  for (const std::string& line : testing::results(metrics("run")))
    if (line.starts_with("eval "))
      evaluated.push_back(std::to_string(nlohmann::json::parse(line.substr(5)).at("step").get<int>()) + " of " +
                          std::to_string(nlohmann::json::parse(line.substr(5)).at("samples").get<int>()));
  EXPECT_EQ(evaluated, (std::vector<std::string>{"2 of 500", "4 of 500", "6 of 500"}));
  // An interrupted run finds its place among the cut epochs.
  const Words saving = Words{"--output-dir", folder_.file("again"), "--save-every", "1", "--resume", "auto"};
  ended(flags + saving + Words{"--max-steps", "3"});
  ended(flags + saving);
  EXPECT_EQ(testing::weights_hash(metrics("again")), testing::weights_hash(metrics("run")));
}

TEST_F(TrainRecipes, AFastDevRunLeavesNothing) {
  const std::size_t before = testing::everything_in(folder_.file(".")).size();
  ended({"--recipe", "mnist-torchrun", "--fast-dev-run", "--synthetic", "--output-dir", folder_.file("run"),
         "--save-weights", folder_.file("w")});
  EXPECT_EQ(testing::everything_in(folder_.file(".")).size(), before);
}

}  // namespace
}  // namespace lockstep
