// What a run of `lockstep train` does and writes.

#include "tests/support/train_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/cores.h"

namespace lockstep {
namespace {

using testing::By;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Job;
using ::testing::Not;
using Flags = std::vector<std::string>;

// A field of one of testing::results().
double number(const std::string& result, const std::string& field) {
  return nlohmann::json::parse(result.substr(result.find(' '))).at(field).get<double>();
}

// Of a safetensors file.
std::string tensor_bytes(const std::string& file, const std::string& name) {
  const std::string content = testing::read_file(file);
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, content.data(), sizeof header_size);
  const std::size_t data = sizeof header_size + header_size;
  const auto offsets =
      nlohmann::json::parse(content.substr(sizeof header_size, header_size)).at(name).at("data_offsets");
  const std::size_t begin = offsets[0], end = offsets[1];
  return content.substr(data + begin, end - begin);
}

class TrainRun : public ::testing::Test {
 protected:
  struct Outcome {
    std::string out, err;
    std::vector<std::string> results;  ///< of metrics.jsonl
    std::string hash;
  };

  // Two processes, 50 samples a step: 5 steps an epoch.
  Outcome train(Flags flags, int processes = 2) {
    flags.insert(flags.end(), {"--dataset", "mnist", "--data-path", set_, "--global-batch-size", "50",
                               "--logical-shards", "2", "--output-dir", run_, "--overwrite"});
    Job job(testing::train_command(By::lockstep, processes, flags));
    EXPECT_EQ(job.wait(), 0) << job.err();
    const std::string metrics = testing::read_file(run_ + "/metrics.jsonl");
    return {job.out(), job.err(), testing::results(metrics), testing::weights_hash(metrics)};
  }

  // The events as "train 3" (step) and "eval 5".
  std::vector<std::string> events(const Flags& flags) {
    std::vector<std::string> short_forms;
    for (const std::string& line : train(flags).results) {
      const std::size_t space = line.find(' ');
      const auto fields = nlohmann::json::parse(line.substr(space));
      const auto step = fields.contains("step") ? fields.at("step") : fields.at("steps");
      short_forms.push_back(line.substr(0, space) + " " + step.dump());
    }
    return short_forms;
  }

  testing::ScratchFolder folder_;
  const std::string set_ = testing::write_mnist(folder_);
  const std::string run_ = folder_.file("run");
};

TEST_F(TrainRun, TheFirstLimitReachedEndsTheRun) {
  EXPECT_THAT(events({"--max-steps", "7", "--print-freq", "3"}),
              ElementsAre("train 3", "eval 5", "train 6", "train 7", "eval 7", "done 7"));
  EXPECT_THAT(events({"--max-steps", "7", "--epochs", "1"}), ElementsAre("train 5", "eval 5", "done 5"));
  EXPECT_THAT(events({"--max-steps", "4", "--epochs", "1"}), ElementsAre("train 4", "eval 4", "done 4"));
  EXPECT_THAT(events({"--max-time", "1e-6", "--epochs", "9"}), ElementsAre("train 1", "eval 1", "done 1"));
  EXPECT_THAT(events({"--epochs", "2", "--no-eval"}), ElementsAre("train 10", "done 10"));
  EXPECT_THAT(events({"--epochs", "0"}), ElementsAre("done 0"));
}

TEST_F(TrainRun, NoEvalNeedsNoTestFiles) {
  std::filesystem::remove(set_ + "/t10k-images-idx3-ubyte");
  EXPECT_THAT(events({"--max-steps", "1", "--no-eval"}), ElementsAre("train 1", "done 1"));
}

TEST_F(TrainRun, LearningLowersTheLoss) {
  const Outcome outcome = train({"--epochs", "6", "--lr", "0.01", "--opt", "adam", "--print-freq", "1"});
  EXPECT_EQ(number(outcome.results.front(), "step"), 1);
  EXPECT_LT(number(outcome.results.at(outcome.results.size() - 3), "loss"),
            number(outcome.results.front(), "loss") / 2);
}

TEST_F(TrainRun, InitialWeightsNeedNoData) {
  const std::string file = folder_.file("w.safetensors");
  const auto initial = [&](const std::string& processes, const std::string& seed) {
    Job job({LOCKSTEP_PROGRAM, "train", "-n", processes, "--dataset", "mnist", "--data-path", "/nowhere", "--max-steps",
             "0", "--seed", seed, "--save-weights", file});
    EXPECT_EQ(job.wait(), 0) << job.err();
    EXPECT_EQ(job.err(), "");
    return testing::read_file(file);
  };
  const std::string weights = initial("1", "0");
  EXPECT_THAT(weights, HasSubstr("\"layer1.0.weight\""));
  EXPECT_EQ(initial("2", "0"), weights);
  EXPECT_NE(initial("2", "1"), weights);
}

TEST_F(TrainRun, SavedWeightsComeBackToTheBit) {
  for (const std::string& model : {std::string("convnet"), std::string("mlp_dropout")}) {
    const std::string file = folder_.file(model + ".safetensors");
    const Outcome trained = train({"--model", model, "--max-steps", "3", "--save-weights", file});
    const std::string bytes = testing::read_file(file);
    const Outcome loaded = train({"--model", model, "--max-steps", "0", "--weights", file, "--save-weights", file}, 1);
    EXPECT_EQ(loaded.hash, trained.hash);
    EXPECT_EQ(testing::read_file(file), bytes);
    EXPECT_NE(train({"--model", model, "--max-steps", "0"}).hash, trained.hash);
  }
}

// CIFAR-100's model for CIFAR-10.
TEST_F(TrainRun, WeightsForOtherClassesLeaveTheLastLayerAndSaySo) {
  const std::string file = folder_.file("w.safetensors");
  const auto start = [&](Flags flags) {
    flags.insert(flags.begin(), {LOCKSTEP_PROGRAM, "train", "-n", "2", "--model", "mlp", "--data-path", "/nowhere",
                                 "--max-steps", "0"});
    Job job(flags);
    EXPECT_EQ(job.wait(), 0) << job.err();
    return job.err();
  };
  EXPECT_EQ(start({"--dataset", "cifar100", "--save-weights", file}), "");
  EXPECT_EQ(start({"--dataset", "cifar10", "--weights", file}),
            "lockstep: fc2.weight in '" + file +
                "' is for 100 classes, the data set has 10: fc2 starts from the seed's " + "weights\n");
  EXPECT_EQ(start({"--dataset", "cifar100", "--weights", file}), "");
}

TEST_F(TrainRun, WhatIsFrozenKeepsItsWeights) {
  const std::string before = folder_.file("before.safetensors"), after = folder_.file("after.safetensors");
  train({"--model", "convnet", "--max-steps", "0", "--save-weights", before});
  train({"--model", "convnet", "--max-steps", "2", "--lr", "0.1", "--momentum", "0.9", "--weight-decay", "0.1",
         "--bias-weight-decay", "0", "--freeze", "layer1.*,layer2.0.weight", "--save-weights", after});
  for (const std::string name :
       {"layer1.0.weight", "layer1.0.bias", "layer1.1.weight", "layer1.1.bias", "layer2.0.weight", "layer2.0.bias",
        "layer2.1.weight", "fc.weight", "fc.bias", "layer1.1.running_mean"}) {
    const bool frozen = name == "layer2.0.weight" || (name.starts_with("layer1.") && !name.ends_with("mean"));
    EXPECT_EQ(tensor_bytes(before, name) == tensor_bytes(after, name), frozen) << name;
  }
}

TEST_F(TrainRun, TheAverageIsEvaluatedAndSaved) {
  const std::string file = folder_.file("w.safetensors"), average = folder_.file("ema.safetensors");
  train({"--epochs", "1", "--lr", "0.1", "--model-ema", "--model-ema-steps", "1", "--model-ema-decay", "0.999",
         "--save-weights", file, "--save-ema-weights", average});
  const auto evaluation = [&] {
    nlohmann::json last;
    for (const std::string& line : testing::lines(testing::read_file(run_ + "/metrics.jsonl")))
      if (auto event = nlohmann::json::parse(line); event.at("event") == "eval") last = std::move(event);
    return last;
  };
  const auto trained = evaluation();
  EXPECT_NE(trained.at("ema_loss"), trained.at("loss"));
  for (const auto& [weights, loss] : {std::pair{file, "loss"}, std::pair{average, "ema_loss"}}) {
    train({"--test-only", "--weights", weights});
    EXPECT_EQ(evaluation().at("loss"), trained.at(loss)) << "--test-only with " << weights;
    EXPECT_EQ(evaluation().at("step"), 0);
  }
}

TEST_F(TrainRun, WeightsMayBeSavedIntoTheNewRunDirectory) {
  train({"--max-steps", "1", "--save-weights", run_ + "/w.safetensors"});
  EXPECT_TRUE(std::filesystem::exists(run_ + "/w.safetensors"));
  train({"--max-steps", "1", "--save-weights", run_ + "/./w.safetensors"});
}

TEST_F(TrainRun, FilesOfARun) {
  train({"--epochs", "1", "--print-freq", "2"});
  std::vector<std::string> names;
  for (const std::string& path : testing::everything_in(run_))
    names.push_back(std::filesystem::path(path).filename().string());
  EXPECT_THAT(names, ElementsAre("config.json", HasSubstr("events.out.tfevents."), "metrics.csv", "metrics.jsonl",
                                 "mistakes.json", "run.id", "run.lock"));
  const auto shown = nlohmann::json::parse(testing::read_file(run_ + "/mistakes.json"));
  EXPECT_EQ(shown.at("step"), 5);
  EXPECT_EQ(shown.at("pictures").size(), 16u);
  EXPECT_THAT(shown.at("pictures")[0].get<std::string>(), ::testing::StartsWith("iVBORw0K")) << "a PNG file";
  for (const std::string& path : testing::everything_in(run_))
    if (path.find("tfevents") != std::string::npos) {
      EXPECT_NE(testing::read_file(path).find("mistakes/16"), std::string::npos);
    }
  const auto config = nlohmann::json::parse(testing::read_file(run_ + "/config.json"));
  EXPECT_EQ(config.at("global_batch_size"), 50);
  EXPECT_EQ(config.at("model"), "convnet");
  const auto rows = testing::lines(testing::read_file(run_ + "/metrics.csv"));
  EXPECT_EQ(rows.size(), 5u) << "a header, steps 2, 4 and 5, one evaluation";
  const auto lines = testing::lines(testing::read_file(run_ + "/metrics.jsonl"));
  const auto start = nlohmann::json::parse(lines.front());
  EXPECT_EQ(start.at("event"), "start");
  EXPECT_EQ(start.at("world_size"), 2);
  EXPECT_EQ(start.at("logical_shards"), 2);
  EXPECT_THAT(nlohmann::json::parse(lines.at(1)).at("stores").get<std::string>(),
              ::testing::AnyOf("plain", "streaming"));
  const auto done = nlohmann::json::parse(lines.back());
  EXPECT_EQ(done.at("steps"), 5);
  EXPECT_EQ(done.at("attempt_steps"), 5);
  EXPECT_GT(done.at("samples_per_second").get<double>(), 0);
  EXPECT_EQ(done.at("weights_hash").get<std::string>().size(), 32u);
}

TEST_F(TrainRun, OverwritingLeavesOtherFilesAlone) {
  train({"--max-steps", "1"});
  folder_.write("run/notes.txt", "mine");
  const auto before = testing::everything_in(run_).size();
  train({"--max-steps", "1"});
  EXPECT_EQ(testing::everything_in(run_).size(), before);
  EXPECT_EQ(testing::read_file(run_ + "/notes.txt"), "mine");
}

TEST_F(TrainRun, ReportsArePlainLinesWithoutATerminal) {
  const Outcome outcome = train({"--epochs", "1", "--print-freq", "1"});
  const auto lines = testing::lines(outcome.out);
  EXPECT_EQ(lines.size(), 7u) << outcome.out;
  EXPECT_THAT(outcome.out, Not(HasSubstr("\r")));
  EXPECT_THAT(outcome.out, HasSubstr("images/s"));
  EXPECT_THAT(lines.back(), HasSubstr(outcome.hash));
}

// A closed stream's number must not become the segment's, into which reports would go then.
TEST_F(TrainRun, ClosedStreamsAreNoFiles) {
  const Outcome open = train({"--max-steps", "3", "--print-freq", "1"});
  for (const char* closed : {">&-", "2>&-", "<&- >&- 2>&-"}) {
    Job job({"/bin/bash",
             "-c",
             std::string("exec \"$@\" ") + closed,
             "bash",
             LOCKSTEP_PROGRAM,
             "train",
             "-n",
             "2",
             "--dataset",
             "mnist",
             "--data-path",
             set_,
             "--global-batch-size",
             "50",
             "--logical-shards",
             "2",
             "--output-dir",
             run_,
             "--overwrite",
             "--max-steps",
             "3",
             "--print-freq",
             "1"});
    EXPECT_EQ(job.wait(), 0) << closed << job.err();
    EXPECT_EQ(testing::results(testing::read_file(run_ + "/metrics.jsonl")), open.results) << closed;
  }
}

TEST_F(TrainRun, ThreadsChangeNothingButBits) {
  const Outcome one = train({"--epochs", "1"});
  const Outcome two = train({"--epochs", "1", "--threads", "2"});
  ASSERT_EQ(two.results.size(), one.results.size());
  EXPECT_NEAR(number(two.results.at(0), "loss"), number(one.results.at(0), "loss"), 1e-4);
  EXPECT_NEAR(number(two.results.at(1), "loss"), number(one.results.at(1), "loss"), 1e-4);
  EXPECT_NEAR(number(two.results.at(1), "top1"), number(one.results.at(1), "top1"), 0.01);
  // The launcher's variable is not consulted.
  Job job(testing::train_command(By::lockstep, 2,
                                 {"--dataset", "mnist", "--data-path", set_, "--global-batch-size", "50",
                                  "--logical-shards", "2", "--output-dir", run_, "--overwrite", "--epochs", "1"}),
          {"OMP_NUM_THREADS=3"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(testing::weights_hash(testing::read_file(run_ + "/metrics.jsonl")), one.hash);
}

TEST_F(TrainRun, IdleCoresAreHintedAtOnce) {
  const int cores = base::usable_cores();
  const Outcome busy =
      train({"--max-steps", "1", "--no-eval", "--channels-last", "--threads", std::to_string((cores + 1) / 2)});
  EXPECT_EQ(busy.err, "");
  if (cores < 2) return;  // one process keeps a single core busy
  const Outcome idle = train({"--max-steps", "1", "--no-eval", "--channels-last"}, 1);
  EXPECT_EQ(testing::lines(idle.err).size(), 1u) << idle.err;
  EXPECT_THAT(idle.err, HasSubstr("hint: 1 process of 1 thread use"));
}

TEST_F(TrainRun, ChannelsLastIsHintedWhereThereAreConvolutions) {
  EXPECT_THAT(train({"--max-steps", "1", "--no-eval", "--model", "convnet"}).err, HasSubstr("hint: --channels-last"));
  for (const Flags& nothing_to_gain : {Flags{"--model", "mlp"}, Flags{"--model", "convnet", "--channels-last"}}) {
    Flags flags = {"--max-steps", "1", "--no-eval"};
    flags.insert(flags.end(), nothing_to_gain.begin(), nothing_to_gain.end());
    EXPECT_THAT(train(flags).err, Not(HasSubstr("--channels-last")));
  }
}

// How many nodes there are is known when the processes have met.
TEST_F(TrainRun, AFastReductionOnOneNodeIsHintedToDoNothing) {
  const Flags flags{"--model", "mlp", "--max-steps", "2", "--no-eval"};
  Flags reduced = flags;
  reduced.insert(reduced.end(), {"--reduction", "fast"});
  const Outcome exact = train(flags), fast = train(reduced);
  EXPECT_THAT(exact.err, Not(HasSubstr("reduction")));
  EXPECT_THAT(fast.err, HasSubstr("without effect: reduction: there is one node"));
  EXPECT_EQ(fast.hash, exact.hash);
}

TEST_F(TrainRun, ACompressionOnOneNodeIsHintedToDoNothing) {
  const Flags flags{"--model", "mlp", "--max-steps", "2", "--no-eval"};
  Flags compressed = flags;
  compressed.insert(compressed.end(), {"--compression", "bf16"});
  const Outcome plain = train(flags), narrow = train(compressed);
  EXPECT_THAT(plain.err, Not(HasSubstr("compression")));
  EXPECT_THAT(narrow.err, HasSubstr("without effect: compression: there is one node"));
  EXPECT_EQ(narrow.hash, plain.hash);
}

TEST_F(TrainRun, SharesOnOneNodeAreHintedToDoNothing) {
  const Flags flags{"--model", "mlp", "--max-steps", "2", "--no-eval"};
  Flags shared_out = flags;
  shared_out.emplace_back("--zero1");
  const Outcome whole = train(flags), shares = train(shared_out);
  EXPECT_THAT(whole.err, Not(HasSubstr("zero1")));
  EXPECT_THAT(shares.err, HasSubstr("without effect: zero1: there is one node"));
  EXPECT_EQ(shares.hash, whole.hash);
}

TEST_F(TrainRun, TheTimelineHasEveryProcess) {
  const std::string file = folder_.file("timeline.json");
  train({"--model", "mlp", "--max-steps", "2", "--no-eval", "--timeline", file});
  std::map<int, std::set<std::string>> phases;
  for (const auto& event : nlohmann::json::parse(testing::read_file(file)))
    if (event.at("ph") == "X") phases[event.at("pid").get<int>()].insert(event.at("name").get<std::string>());
  ASSERT_EQ(phases.size(), 2u);
  for (const auto& [rank, names] : phases)
    EXPECT_THAT(names, ElementsAre("backward", "between", "exchange gradients", "exchange votes", "forward", "update"));
}

}  // namespace
}  // namespace lockstep
