// The real `lockstep predict`, with weights that the real trainer has saved.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/train_run.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::Job;
using testing::Words;
using testing::operator+;

class Predict : public ::testing::Test {
 protected:
  Words with_set(const Words& words) const {
    return Words{LOCKSTEP_PROGRAM} + words + Words{"--model", "mlp", "--dataset", "mnist", "--data-path", set_};
  }

  // Trains a little; returns what the last evaluation found.
  nlohmann::json train() const {
    Job job(with_set({"train", "--epochs", "3", "--lr", "0.01", "--opt", "adam", "--batch-size", "50", "--save-weights",
                      weights_, "--output-dir", folder_.file("run")}));
    EXPECT_EQ(job.wait(), 0) << job.err();
    nlohmann::json last;
    for (const std::string& line : testing::lines(testing::read_file(folder_.file("run/metrics.jsonl"))))
      if (const auto event = nlohmann::json::parse(line); event.at("event") == "eval") last = event;
    return last;
  }

  Words predict(const std::string& processes, const std::string& output) const {
    return with_set({"predict", "-n", processes, "--weights", weights_, "--output", output});
  }

  testing::ScratchFolder folder_;
  const std::string set_ = testing::write_mnist(folder_);
  const std::string weights_ = folder_.file("w.safetensors");
};

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream text(line);
  for (std::string field; std::getline(text, field, ',');) fields.push_back(field);
  return fields;
}

TEST_F(Predict, SeesWhatTheTrainerEvaluatedOnAnyNumberOfProcesses) {
  const nlohmann::json evaluated = train();
  std::string first;
  for (const std::string processes : {"1", "2", "3"}) {
    const std::string output = folder_.file(processes + ".csv");
    Job job(predict(processes, output));
    EXPECT_EQ(job.wait(), 0) << job.err();
    EXPECT_THAT(job.out(), HasSubstr("predicted 1100 pictures, accuracy "));
    EXPECT_TRUE(job.nothing_left());
    const std::string text = testing::read_file(output);
    if (first.empty()) first = text;
    EXPECT_EQ(text, first) << processes << " processes";
  }
  const std::vector<std::string> lines = testing::lines(first);
  ASSERT_EQ(lines.size(), 1u + testing::kTestImages);
  EXPECT_EQ(lines[0], "sample,file,label,prediction,probability");
  int correct = 0;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> fields = fields_of(lines[i]);
    ASSERT_EQ(fields.size(), 5u) << lines[i];
    EXPECT_EQ(fields[0], std::to_string(i - 1));
    correct += fields[2] == fields[3];
    EXPECT_GE(std::stod(fields[4]), 0.1) << "the best of ten";
  }
  EXPECT_EQ(double(correct) / testing::kTestImages, evaluated.at("top1").get<double>());
}

// What the environment of a libtorch says by hand, whoever starts the predictor: our launcher, or nobody, and then it
// starts itself again.
TEST_F(Predict, PortableArithmeticIsSetBeforeLibtorchStarts) {
  train();
  const Words variables = {"ATEN_CPU_CAPABILITY=avx2", "ONEDNN_MAX_CPU_ISA=AVX2", "MKL_CBWR=COMPATIBLE"};
  Job by_hand(predict("1", folder_.file("hand.csv")), variables);
  ASSERT_EQ(by_hand.wait(), 0) << by_hand.err();
  Words launched = predict("2", folder_.file("launched.csv")) + Words{"--arithmetic", "portable"};
  Words alone = predict("1", folder_.file("alone.csv")) + Words{"--arithmetic", "portable"};
  alone.erase(alone.begin() + 1, alone.begin() + 4);  // predict -n 1 are the launcher's
  alone[0] = std::filesystem::path(LOCKSTEP_PROGRAM).replace_filename("lockstep-predictor").string();
  for (const auto& [command, file] : {std::pair(launched, "launched.csv"), std::pair(alone, "alone.csv")}) {
    Job job(command);
    ASSERT_EQ(job.wait(), 0) << job.err();
    EXPECT_EQ(testing::read_file(folder_.file(file)), testing::read_file(folder_.file("hand.csv"))) << file;
  }
}

TEST_F(Predict, WhatDoesNotFitIsSaidInOneLineAndWritesNothing) {
  train();
  const std::string output = folder_.file("p.csv");
  const auto refused = [&](const Words& command, const std::string& reason) {
    Job job(command);
    EXPECT_EQ(job.wait(), 2);
    EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
    EXPECT_THAT(job.err(), HasSubstr(reason));
    EXPECT_FALSE(std::filesystem::exists(output));
  };
  Words other_model = predict("2", output);
  *std::find(other_model.begin(), other_model.end(), "mlp") = "convnet";
  refused(other_model, "does not fit the model");
  refused(predict("2", "/nowhere/p.csv"), "/nowhere/p.csv");
  refused(with_set({"predict", "--output", output}), "--weights FILE is missing");
  refused(predict("2", output) + Words{"--lr", "1"}, "--lr");
  refused(predict("1", output) + Words{"--device", "cuda:63"}, "device");
}

}  // namespace
}  // namespace lockstep
