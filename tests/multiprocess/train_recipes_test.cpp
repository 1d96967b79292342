// Recipes, from their names to their results; limits, and pictures made of nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/image_files.h"
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

  // y = a - 2 b.
  std::string write_table() const {
    std::string text = "a,b,y\n";
    for (int row = 0; row < 200; ++row)
      text += std::to_string(row % 7) + "," + std::to_string(row % 5) + "," + std::to_string(row % 7 - 2 * (row % 5)) +
              "\n";
    return folder_.write("table.csv", text);
  }

  testing::ScratchFolder folder_;
};

// Those for large pictures would take minutes.
TEST_F(TrainRecipes, EachRunsAsItStands) {
  Job list(Words{LOCKSTEP_PROGRAM, "recipes"});
  ASSERT_EQ(list.wait(), 0);
  std::vector<std::string> names;
  for (const std::string& line : testing::lines(list.out()))
    if (!line.starts_with(" ")) names.push_back(line);
  EXPECT_THAT(names,
              ::testing::IsSupersetOf({"mnist-single", "mnist-data-parallel", "mnist-distributed", "mnist-torchrun",
                                       "mnist-mixed-precision", "cifar100-resnet18", "cifar100-resnet18-dp",
                                       "cifar100-resnet18-sync-bn", "cifar100-resnet18-amp"}));
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    if (name == "resnet50-mock" || name == "cifar100-methods") continue;  // several runs: below
    const Words smaller = name.starts_with("imagenet")   ? Words{"--global-batch-size", "2", "--no-eval"}
                          : name.starts_with("cifar100") ? Words{"--batch-size", "2", "--no-eval"}
                          : name.starts_with("finetune") ? Words{"--batch-size", "2", "--transforms", "resize=32x32"}
                                                         : Words{};
    const Words set = name == "csv-regression"      ? Words{"--data-path", write_table()}
                      : name == "linear-regression" ? Words{}
                                                    : Words{"--synthetic"};
    const std::string said = ended(Words{"--recipe", name, "--fast-dev-run"} + set + smaller);
    EXPECT_THAT(said, HasSubstr("recipe " + name + ": --"));
    EXPECT_THAT(said, HasSubstr("weights "));
  }
}

TEST_F(TrainRecipes, EachOfSeveralRunsTakesAStep) {
  for (const Words& flags :
       {Words{"resnet50-mock", "--transforms", "resize=32x32"}, {"cifar100-methods", "--synthetic"}}) {
    SCOPED_TRACE(flags.front());
    const std::string said =
        ended(Words{"--recipe"} + flags + Words{"--fast-dev-run", "--batch-size", "4", "--no-eval"});
    EXPECT_THAT(said, HasSubstr("recipe " + flags.front() + ", run 5 of 5"));
    int ends = 0;
    for (const std::string& line : testing::lines(said)) ends += line.starts_with("done: 1 steps");
    EXPECT_EQ(ends, 5) << said;
  }
}

TEST_F(TrainRecipes, SeveralRunsMakeATable) {
  const Words small = {"--model", "mlp", "--transforms", "resize=32x32", "--batch-size", "2", "--max-steps", "1"};
  Job job(Words{LOCKSTEP_PROGRAM, "train", "--recipe=resnet50-mock", "--output-dir", folder_.file("runs")} + small);
  ASSERT_EQ(job.wait(), 0) << job.err();
  const std::vector<std::string> said = testing::lines(job.out());
  ASSERT_GE(said.size(), 6u);
  EXPECT_THAT(said.end()[-6], ::testing::MatchesRegex("method +processes +batch +ms/sample +ratio +s/epoch +top-1 %"));
  EXPECT_THAT(said.end()[-5], ::testing::MatchesRegex("serial +1 +2 +[0-9.]+ +1.00 +[0-9.]+ +–"));
  EXPECT_THAT(said.end()[-4], ::testing::MatchesRegex("dp +1 +2 +[0-9.]+ +[0-9.]+ +[0-9.]+ +–"));
  EXPECT_THAT(said.end()[-3], ::testing::MatchesRegex("ddp +2 +4 +[0-9.]+ +[0-9.]+ +[0-9.]+ +–"));
  EXPECT_THAT(said.end()[-1], HasSubstr("ddp-amp"));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("runs/ddp-amp/config.json")));
  EXPECT_THAT(job.err(), HasSubstr("lockstep: recipe resnet50-mock, run 5 of 5: ddp-amp"));
  // The first that fails ends it.
  Job failing({LOCKSTEP_PROGRAM, "train", "--recipe", "cifar100-methods", "--data-path", "/nowhere"});
  EXPECT_EQ(failing.wait(), 2);
  EXPECT_THAT(failing.err(), ::testing::Not(HasSubstr("run 2 of")));
}

TEST_F(TrainRecipes, TheRecordOfARunRepeatsItsBits) {
  const std::string set = testing::write_mnist(folder_);
  const std::string first = folder_.file("first"), second = folder_.file("second");
  ended({"--recipe", "mnist-mixed-precision", "--data-path", set, "--max-steps", "4", "--batch-size", "20",
         "--output-dir", first, "--no-eval"},
        {"LOCKSTEP_SEED=3"});
  ended({"--config", first + "/config.json", "--output-dir", second});
  EXPECT_EQ(testing::weights_hash(metrics("second")), testing::weights_hash(metrics("first")));
  EXPECT_EQ(nlohmann::json::parse(testing::read_file(first + "/config.json")).at("seed"), 3);
  // Shards and batch are of the record, whoever computes them.
  ended({"-n", "1", "--config", second + "/config.json", "--output-dir", folder_.file("third")});
  EXPECT_EQ(testing::weights_hash(metrics("third")), testing::weights_hash(metrics("first")));
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

// Rows belong to logical shards: who computes them changes no bit.
TEST_F(TrainRecipes, ATableIsLearnedWithTheSameBitsOnAnyNumberOfProcesses) {
  const std::string table = write_table();
  for (const auto& [processes, batch] : {std::pair("1", "32"), std::pair("2", "16")})
    ended({"--recipe", "csv-regression", "-n", processes, "--logical-shards", "2", "--data-path", table, "--model",
           "linear", "--lr", "0.2", "--batch-size", batch, "--epochs", "30", "--output-dir",
           folder_.file(std::string("run") + processes)});
  EXPECT_EQ(testing::weights_hash(metrics("run1")), testing::weights_hash(metrics("run2")));
  // Slices are the shards', too.
  for (const char* run : {"run1", "run2"})
    ended({"--config", folder_.file(std::string(run) + "/config.json"), "--slice-rows", "--output-dir",
           folder_.file(std::string(run) + "-sliced")});
  EXPECT_EQ(testing::weights_hash(metrics("run1-sliced")), testing::weights_hash(metrics("run2-sliced")));
  EXPECT_NE(testing::weights_hash(metrics("run1-sliced")), testing::weights_hash(metrics("run1")));
  const auto last_eval = [&](const std::string& run) {
    nlohmann::json last;
    for (const std::string& line : testing::lines(metrics(run)))
      if (const auto event = nlohmann::json::parse(line); event.at("event") == "eval") last = event;
    return last;
  };
  const nlohmann::json found = last_eval("run1"), of_two = last_eval("run2");
  EXPECT_GT(found.at("r2").get<double>(), 0.99);
  EXPECT_LT(found.at("mae").get<double>(), 0.3);
  EXPECT_EQ(found.at("samples"), 40);
  for (const char* number : {"loss", "mae", "r2"}) EXPECT_EQ(found.at(number), of_two.at(number));
  const Words command = {LOCKSTEP_PROGRAM, "train", "--recipe", "csv-regression", "--data-path", table};
  Job missing(command + Words{"--target", "price"});
  EXPECT_EQ(missing.wait(), 2);
  EXPECT_THAT(missing.err(), HasSubstr("'" + table + "'"));
}

// So do the lines of a list of pictures.
TEST_F(TrainRecipes, PicturesByAListAreLearnedWithTheSameBitsOnAnyNumberOfProcesses) {
  testing::write_pictures(folder_, "pictures", {.per_class = 8});
  std::string list = "path,label\n";
  for (int i = 0; i < 8; ++i)
    for (const auto& [name, label] : {std::pair("ant", "0"), std::pair("bee", "1")})
      list += "pictures/" + std::string(name) + "/" + std::to_string(i) + ".jpg," + label + "\n";
  folder_.write("train.csv", list);
  const auto hash = [&](const char* processes, const Words& more) {
    ended(Words{"-n", processes, "--logical-shards", "2", "--global-batch-size", "4", "--dataset", "csv-images",
                "--data-path", folder_.path(), "--transforms", "hflip,to_tensor", "--model", "mlp", "--no-eval",
                "--overwrite", "--output-dir", folder_.file("run")} +
          more);
    return testing::weights_hash(metrics("run"));
  };
  const std::string mixed = hash("1", {}), sliced = hash("1", {"--slice-rows"});
  EXPECT_EQ(hash("2", {}), mixed);
  EXPECT_EQ(hash("2", {"--slice-rows"}), sliced);
  EXPECT_NE(mixed, sliced);
}

// The best of three epochs is looked at again when all are over, on a part of its own.
TEST_F(TrainRecipes, AFineTuningEndsWithItsBestCheckpoint) {
  for (const char* part : {"Train", "Validation", "Test"})
    testing::write_pictures(folder_, part, {.classes = {"a", "b", "c"}, .per_class = 4, .size = {40, 32}});
  const Words flags = {"--recipe",     "finetune-resnet34",
                       "--data-path",  folder_.path(),
                       "--transforms", "auto_augment,resize=32x32,to_tensor",
                       "--model",      "convnet",
                       "--batch-size", "6",
                       "--epochs",     "3",
                       "--output-dir", folder_.file("run")};
  const std::string said = ended(flags + Words{"--test-split", "Test"});
  EXPECT_THAT(said, HasSubstr(" on Test: loss "));
  std::vector<nlohmann::json> found;
  for (const std::string& line : testing::lines(metrics("run")))
    if (auto event = nlohmann::json::parse(line); event.at("event") == "eval") found.push_back(std::move(event));
  ASSERT_EQ(found.size(), 4u);
  double best = 0;
  std::int64_t step = 0;
  for (const nlohmann::json& event : {found[0], found[1], found[2]})
    if (const double top1 = event.at("top1"); top1 > best) {
      best = top1;
      step = event.at("step");
    }
  EXPECT_EQ(found[3].at("best_on"), "Test");
  EXPECT_EQ(found[3].at("step"), step);
  EXPECT_EQ(found[3].at("samples"), 12);
  // Evaluated on what it was chosen by, it is as good as it was then.
  ended(flags + Words{"--overwrite"});
  nlohmann::json last;
  for (const std::string& line : testing::lines(metrics("run")))
    if (auto event = nlohmann::json::parse(line); event.value("best_on", "") != "") last = event;
  EXPECT_EQ(last.at("top1"), best);
  Job missing(Words{LOCKSTEP_PROGRAM, "train"} + flags + Words{"--overwrite", "--test-split", "Tset"});
  EXPECT_EQ(missing.wait(), 2);
  EXPECT_THAT(missing.err(), HasSubstr("no folder 'Tset' in '"));
  // One that is there and cannot be read ends nothing later, either.
  std::filesystem::create_directories(folder_.file("Empty"));
  Job empty(Words{LOCKSTEP_PROGRAM, "train"} + flags + Words{"--overwrite", "--test-split", "Empty"});
  EXPECT_EQ(empty.wait(), 2);
  EXPECT_THAT(empty.out(), ::testing::Not(HasSubstr("epoch")));
}

TEST_F(TrainRecipes, AFastDevRunLeavesNothing) {
  const std::size_t before = testing::everything_in(folder_.file(".")).size();
  ended({"--recipe", "mnist-torchrun", "--fast-dev-run", "--synthetic", "--output-dir", folder_.file("run"),
         "--save-weights", folder_.file("w")});
  EXPECT_EQ(testing::everything_in(folder_.file(".")).size(), before);
}

// What nobody can see on the command line is told.
TEST(TrainFlags, OfTheEnvironmentArePrinted) {
  Job job({"/usr/bin/env", "LOCKSTEP_LR=0.0625", LOCKSTEP_PROGRAM, "train", "--dataset", "line", "--model", "linear",
           "--max-steps", "1", "--no-eval"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("--lr 0.0625"));
}

// Nor what has become of a file's flags.
TEST_F(TrainRecipes, AFlagOfAFileThatIsLeftOutIsTold) {
  const std::string file = folder_.write("own.json", R"({"dataset": "line", "model": "linear", "momentum": 0.5})");
  EXPECT_THAT(ended({"--config", file, "--opt", "adam", "--max-steps", "1", "--no-eval"}),
              HasSubstr("lockstep: left out, as of no meaning beside the flags given: --momentum\n"));
}

}  // namespace
}  // namespace lockstep
