// lockstep train goes on from its checkpoints: from which one, in which run, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/multiprocess/resumed_run.h"
#include "tests/support/image_files.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using testing::By;
using ::testing::HasSubstr;
using testing::Job;
using testing::Words;
using testing::operator+;

void flip_last_bit(const std::string& file) {
  std::string bytes = testing::read_file(file);
  bytes.back() ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
}

TEST_F(TrainResume, WithReplicasOfOneProcess) {
  const Words replicas = {"--parallel", "dp",      "--replicas", "2",        "--logical-shards",
                          "1",          "--model", "convnet",    "--no-eval"};
  ended(1, replicas + Words{"--output-dir", folder_.file("undisturbed"), "--max-steps", "14"});
  const Words saving = replicas + Words{"--output-dir", folder_.file("run"), "--save-every", "6"};
  ended(1, saving + Words{"--max-steps", "6"});
  ended(1, saving + Words{"--max-steps", "14", "--resume", "auto"});
  EXPECT_EQ(hash("run"), hash("undisturbed"));
}

// One of a minute, behind the last step. Who goes on makes it anew, and it is the job's end.
TEST_F(TrainResume, ASignalEndsAnEvaluation) {
  const Words flags = {"--dataset",
                       "cifar10",
                       "--synthetic",
                       "--model",
                       "resnet18",
                       "--transforms",
                       "resize=224x224,to_tensor",
                       "--max-steps",
                       "1",
                       "--global-batch-size",
                       "2",
                       "--logical-shards",
                       "2",
                       "--print-freq",
                       "1",
                       "--save-every",
                       "1000",
                       "--resume",
                       "auto",
                       "--output-dir",
                       folder_.file("run")};
  Job job(testing::train_command(By::lockstep, 2, flags));
  testing::wait_until([&] { return reported() >= 2 || testing::process_state(job.pid()) == 'Z'; });
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 75) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("stopped behind step 1 of 1 by a signal; saved in '"));
  EXPECT_EQ(saved_state().at("step"), 1);
  Job rest(testing::train_command(By::lockstep, 1, flags + Words{"--limit-val-batches", "1"}));
  EXPECT_EQ(rest.wait(), 0) << rest.err();
  EXPECT_THAT(rest.out(), HasSubstr("evaluation: loss"));
  EXPECT_THAT(rest.out(), HasSubstr("done: 1 steps"));
}

TEST_F(TrainResume, FromTheMiddleOfAnEpochOrFromTheBest) {
  ended(2, {"--epochs", "3", "--output-dir", folder_.file("whole"), "--save-every", "1ep", "--checkpoint-hist", "2"});
  // One that falls due while another is written is left out, but for the last.
  const std::string checkpoints = folder_.file("whole/checkpoints");
  for (const char* there : {"step-00000033", "last", "best"})
    EXPECT_TRUE(std::filesystem::exists(checkpoints + "/" + there)) << there;
  std::size_t steps = 0;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints))
    steps += entry.path().filename().string().starts_with("step-") ? 1 : 0;
  EXPECT_LE(steps, 3u) << "two, and the best one";
  // A path, another folder, one process.
  ended(2, {"--max-steps", "15", "--output-dir", folder_.file("part"), "--save-every", "5", "--epochs", "3"});
  const std::string said =
      ended(1, {"--epochs", "3", "--output-dir", folder_.file("rest"), "--resume", folder_.file("part")});
  EXPECT_EQ(hash("rest"), hash("whole"));
  EXPECT_THAT(refused(1, {"--epochs", "3", "--limit-train-batches", "2", "--output-dir", folder_.file("no"), "--resume",
                          folder_.file("part")}),
              HasSubstr("--limit-train-batches 2 in an epoch of which 4 batches were taken already"));
  EXPECT_THAT(
      said, HasSubstr("going on from '" + folder_.file("part/checkpoints/step-00000015") + "', behind step 15 of 33"));
  // Past the newest when a bit of it has turned; the one before has more left to do, with the same end.
  flip_last_bit(folder_.file("part/checkpoints/step-00000015/model.safetensors"));
  const std::string warned = ended(1, {"--epochs", "3", "--output-dir", folder_.file("part"), "--resume", "auto"});
  EXPECT_THAT(warned, HasSubstr("lockstep: warning: checkpoint '" + folder_.file("part/checkpoints/step-00000015") +
                                "' is passed over: '" +
                                folder_.file("part/checkpoints/step-00000015/model.safetensors") + "': tensor '"));
  EXPECT_THAT(warned,
              ::testing::ContainsRegex("going on from '[^']*/step-000000(05|10|11)', behind step (5|10|11) of 33"));
  EXPECT_EQ(hash("part"), hash("whole"));
  // A run that has ended has nothing left to do.
  ended(2, {"--epochs", "3", "--output-dir", folder_.file("whole"), "--resume", "last"});
  EXPECT_EQ(hash("whole"), hash("rest"));
}

// A rate at which the loss goes up and down. A run of its own for each epoch: no save is left out because another one
// is being written, and what was good before a restart still counts.
TEST_F(TrainResume, TheBestAndTheNewestStay) {
  std::vector<std::pair<double, std::string>> evaluated;
  for (int epoch = 1; epoch <= 4; ++epoch) {
    ended(1, {"--epochs", "4", "--max-steps", std::to_string(11 * epoch), "--lr", epoch == 2 ? "50" : "0.05",
              "--save-every", "1ep", "--monitor", "loss", "--checkpoint-hist", "1", "--checkpoint-best", "2",
              "--resume", "auto", "--output-dir", folder_.file("run")});
    double loss = 0;
    for (const std::string& line : testing::lines(testing::read_file(folder_.file("run/metrics.jsonl"))))
      if (const auto event = nlohmann::json::parse(line); event.at("event") == "eval") loss = event.at("loss");
    const std::string newest = "step-000000" + std::to_string(11 * epoch);
    evaluated.emplace_back(loss, newest);
    std::ranges::sort(evaluated);
    std::set<std::string> expected = {newest}, found;
    for (std::size_t i = 0; i < 2 && i < evaluated.size(); ++i) expected.insert(evaluated[i].second);
    for (const auto& entry : std::filesystem::directory_iterator(folder_.file("run/checkpoints")))
      if (const std::string name = entry.path().filename(); name.starts_with("step-")) found.insert(name);
    EXPECT_EQ(found, expected);
    EXPECT_EQ(std::filesystem::read_symlink(folder_.file("run/checkpoints/best")), evaluated[0].second);
  }
  EXPECT_EQ(evaluated[0].second, "step-00000011") << "no test of what stays: " << ::testing::PrintToString(evaluated);
}

// Of 11 steps an epoch; no step is due.
TEST_F(TrainResume, WhatWasEvaluatedIsSavedWhereStepsOrSecondsAreCounted) {
  for (const std::string every : {"1000", "1000s"}) {
    const std::string run = folder_.file(every);
    ended(1, {"--epochs", "2", "--save-every", every, "--checkpoint-hist", "1", "--checkpoint-best", "2",
              "--output-dir", run});
    for (const char* step : {"step-00000011", "step-00000022"}) {
      const std::string file = run + "/checkpoints/" + step + "/state.json";
      ASSERT_TRUE(std::filesystem::exists(file)) << file;
      EXPECT_TRUE(nlohmann::json::parse(testing::read_file(file)).at("metric").is_number()) << file;
    }
  }
}

// 7 steps of 24 samples, then the 82 that are left of 250 in batches of 30, then whole epochs of 9 steps: on any number
// of processes, and behind one more interruption, the same bits.
TEST_F(TrainResume, WithAnotherBatchTheRestOfTheEpochComesFirst) {
  const Words first = {"--epochs", "3", "--max-steps", "7", "--save-every", "7", "--output-dir"};
  ended(2, first + Words{folder_.file("part")});
  ended(2, first + Words{folder_.file("run")});
  const Words other = {"--epochs",     "3", "--global-batch-size", "30", "--logical-shards", "3",
                       "--save-every", "2", "--output-dir"};
  const std::string said = ended(3, other + Words{folder_.file("rest"), "--resume", folder_.file("part")});
  EXPECT_THAT(said, HasSubstr("behind step 7 of 28"));
  EXPECT_THAT(said, HasSubstr("lockstep: batches are of 30 samples in 3 shards, before they were of 24 samples in 4 "
                              "shards: epoch 1 goes on behind 168 of its 250 samples"));
  ended(1, other + Words{folder_.file("run"), "--resume", "auto", "--max-steps", "9"});
  EXPECT_EQ(saved_step(), 9);
  const std::string again = ended(2, other + Words{folder_.file("run"), "--resume", "auto"});
  EXPECT_EQ(again.find("batches are of"), std::string::npos) << "they are those of before";
  EXPECT_EQ(hash("run"), hash("rest"));
  EXPECT_THAT(
      refused(1, other + Words{folder_.file("no"), "--resume", folder_.file("part"), "--limit-train-batches", "2"}),
      HasSubstr("--limit-train-batches has no meaning in an epoch that was begun with another batch"));
}

TEST_F(TrainResume, AnotherWayOfTheRateOrOfTheAverageIsTold) {
  const Words flags = {"--lr-scheduler", "cosineannealinglr", "--model-ema", "--save-every", "11",
                       "--no-eval",      "--resume",          "auto",        "--output-dir"};
  ended(1, flags + Words{folder_.file("run"), "--max-steps", "11"});
  const std::string longer = ended(1, flags + Words{folder_.file("run"), "--max-steps", "22", "--lr", "0.02"});
  EXPECT_THAT(longer, HasSubstr("lockstep: the learning rate goes otherwise than before: "
                                "epochs_in_run was 1, now 2; lr was 0.01, now 0.02\n"));
  EXPECT_THAT(longer, HasSubstr("lockstep: the average of the weights goes otherwise than before: decay was 0.98"));
  const std::string same = ended(1, flags + Words{folder_.file("run"), "--max-steps", "22", "--lr", "0.02"});
  EXPECT_THAT(same, HasSubstr("going on from '"));
  EXPECT_EQ(same.find("goes otherwise"), std::string::npos) << same;
}

TEST_F(TrainResume, APartThatAFlagSwitchesIsNamedWithTheFlag) {
  const Words flags = {"--save-every", "2", "--resume", "auto", "--limit-val-batches", "1", "--output-dir"};
  const Words patience = {"--patience", "5"};
  ended(1, flags + Words{folder_.file("plain"), "--max-steps", "2"});
  EXPECT_THAT(refused(2, flags + Words{folder_.file("plain"), "--max-steps", "4"} + patience),
              HasSubstr("step-00000002' does not fit: it has no 'judgement', which this run has by --patience or "
                        "--lr-scheduler reducelronplateau: leave that out"));
  ended(1, flags + Words{folder_.file("patient"), "--max-steps", "2"} + patience);
  EXPECT_THAT(refused(1, flags + Words{folder_.file("patient"), "--max-steps", "4"}),
              HasSubstr("step-00000002' does not fit: it has a 'judgement', which this run has only by --patience"));
}

TEST_F(TrainResume, AnotherWayOfTheStepsIsTold) {
  const Words flags = {"--save-every", "4", "--no-eval", "--resume", "auto", "--output-dir", folder_.file("run")};
  const Words other = {"--momentum", "0.75", "--label-smoothing", "0.25"};
  ended(1, flags + Words{"--momentum", "0.5", "--max-steps", "4"});
  EXPECT_THAT(ended(1, flags + other + Words{"--max-steps", "8"}),
              HasSubstr("lockstep: steps are computed otherwise than before: "
                        "label_smoothing was 0.0, now 0.25; momentum was 0.5, now 0.75\n"));
  const std::string same = ended(1, flags + other + Words{"--max-steps", "12"});
  EXPECT_THAT(same, HasSubstr("going on from '"));
  EXPECT_EQ(same.find("computed otherwise"), std::string::npos) << same;
}

TEST_F(TrainResume, MetricsOfAnotherEvaluationAreTold) {
  const Words flags = {"--save-every", "4", "--resume", "auto", "--output-dir", folder_.file("run")};
  ended(1, flags + Words{"--max-steps", "4"});
  const Words other = {"--limit-val-batches", "1"};
  EXPECT_THAT(ended(1, flags + other + Words{"--max-steps", "8"}),
              HasSubstr("lockstep: metrics do not compare with those of before, by which 'best' is chosen: "
                        "limit_val_batches was null, now 1"));
  const std::string same = ended(1, flags + other + Words{"--max-steps", "12"});
  EXPECT_THAT(same, HasSubstr("going on from '"));
  EXPECT_EQ(same.find("do not compare"), std::string::npos) << same;
}

TEST_F(TrainResume, ACheckpointIsEvaluated) {
  const std::string first = folder_.file("run");
  ended(2, {"--max-steps", "4", "--output-dir", first, "--save-every", "2"});
  const auto loss = [&](const std::string& run) {
    nlohmann::json last;
    for (const std::string& line : testing::lines(testing::read_file(folder_.file(run + "/metrics.jsonl"))))
      if (auto event = nlohmann::json::parse(line); event.at("event") == "eval") last = event.at("loss");
    return last;
  };
  const Words only = {"--test-only", "--resume", first};
  EXPECT_THAT(ended(2, only + Words{"--output-dir", folder_.file("other")}),
              HasSubstr("lockstep: evaluating '" + first + "/checkpoints/step-00000004'\n"));
  EXPECT_EQ(loss("other"), loss("run"));
  EXPECT_EQ(hash("other"), hash("run"));
  flip_last_bit(first + "/checkpoints/step-00000002/model.safetensors");
  EXPECT_THAT(refused(2, {"--test-only", "--resume", first + "/checkpoints/step-00000002"}), HasSubstr("tensor '"));
}

TEST_F(TrainResume, TheBestIsToldWithItsEpoch) {
  ended(1, {"--epochs", "2", "--save-every", "2ep", "--eval-best", "--output-dir", folder_.file("run")});
  nlohmann::json best;
  for (const std::string& line : testing::lines(testing::read_file(folder_.file("run/metrics.jsonl"))))
    if (auto event = nlohmann::json::parse(line); event.contains("best_on")) best = event;
  ASSERT_TRUE(best.is_object());
  EXPECT_EQ(best.at("step"), 22);
  EXPECT_EQ(best.at("epoch"), 2);
}

// Of 11 steps in its epoch, where those behind it have 2: the rate of the second one makes all later ones worse.
TEST_F(TrainResume, TheBestIsToldWithItsEpochBehindAnotherBatch) {
  const Words flags = {"--save-every", "1ep",  "--monitor",    "loss",
                       "--resume",     "auto", "--output-dir", folder_.file("run")};
  ended(1, flags + Words{"--epochs", "1", "--lr", "0.05"});
  ended(1, flags + Words{"--epochs", "2", "--lr", "50"});
  ended(1, flags + Words{"--epochs", "3", "--lr", "0.05", "--global-batch-size", "125", "--logical-shards", "5",
                         "--eval-best"});
  nlohmann::json best;
  for (const std::string& line : testing::lines(testing::read_file(folder_.file("run/metrics.jsonl"))))
    if (auto event = nlohmann::json::parse(line); event.contains("best_on")) best = event;
  ASSERT_TRUE(best.is_object());
  EXPECT_EQ(best.at("step"), 11);
  EXPECT_EQ(best.at("epoch"), 1);
}

// The rate of 0 changes nothing, so no evaluation is better than the first one.
TEST_F(TrainResume, PatienceEndsTheRunAndIsRemembered) {
  const Words flags = {"--epochs",     "9",
                       "--lr",         "0",
                       "--patience",   "2",
                       "--monitor",    "loss",
                       "--save-every", "1ep",
                       "--resume",     "auto",
                       "--output-dir", folder_.file("run")};
  ended(2, flags);
  const auto steps = [&] {
    return nlohmann::json::parse(testing::lines(testing::read_file(folder_.file("run/metrics.jsonl"))).back())
        .at("steps");
  };
  EXPECT_EQ(steps(), 33) << "three epochs";
  EXPECT_EQ(saved_step(), 33);
  ended(1, flags);
  EXPECT_EQ(steps(), 33) << "nothing is left to do";
}

TEST_F(TrainResume, IsRefusedInOneLine) {
  const std::string run = folder_.file("run");
  EXPECT_THAT(refused(1, {"--max-steps", "3", "--output-dir", run, "--resume", "last"}),
              HasSubstr("there is no checkpoint in '" + run + "/checkpoints'"));
  EXPECT_FALSE(std::filesystem::exists(run));
  ended(2, {"--max-steps", "3", "--output-dir", run, "--save-every", "1", "--resume", "auto"});
  const std::string other =
      refused(2, {"--max-steps", "5", "--output-dir", run, "--resume", "auto", "--opt", "adam", "--seed", "3"});
  EXPECT_EQ(testing::lines(other).size(), 1u) << other;
  EXPECT_THAT(other, HasSubstr("is of another run: optimizer was \"sgd\", now \"adam\"; seed was 0, now 3"));
  // --overwrite begins anew, and the old checkpoints go.
  ended(2, {"--max-steps", "2", "--output-dir", run, "--save-every", "1", "--overwrite"});
  EXPECT_FALSE(std::filesystem::exists(run + "/checkpoints/step-00000003"));
  EXPECT_TRUE(std::filesystem::exists(run + "/checkpoints/step-00000002"));
}

// Names of pictures are the set's entries: as many of the same size, one of them under another name.
TEST_F(TrainResume, AnotherSetOrArithmeticIsRefused) {
  testing::write_pictures(folder_, "photos/train", {.per_class = 6, .size = {12, 12}});
  const Words first = {"--dataset",
                       "imagefolder",
                       "--data-path",
                       folder_.file("photos"),
                       "--train-split",
                       "train",
                       "--no-eval",
                       "--transforms",
                       "to_tensor",
                       "--model",
                       "mlp",
                       "--max-steps",
                       "2",
                       "--global-batch-size",
                       "4",
                       "--output-dir"};
  const Words flags = first + Words{folder_.file("pictures"), "--save-every", "1", "--resume", "auto"};
  ended(1, flags);
  EXPECT_THAT(refused(1, flags + Words{"--arithmetic", "portable"}),
              HasSubstr("is of another run: arithmetic was \"native\", now \"portable\""));
  namespace fs = std::filesystem;
  std::vector<fs::path> pictures;
  for (const auto& entry : fs::recursive_directory_iterator(folder_.file("photos")))
    if (entry.is_regular_file()) pictures.push_back(entry.path());
  ASSERT_FALSE(pictures.empty());
  const fs::path other = pictures[0].parent_path() / ("other" + pictures[0].extension().string());
  fs::rename(pictures[0], other);
  const std::string said = refused(1, flags);
  EXPECT_THAT(said, HasSubstr("is of another run: entries was "));
  EXPECT_EQ(testing::lines(said).size(), 1u) << said;
  fs::rename(other, pictures[0]);
  ended(1, flags);
}

// The state of a run that goes on from elsewhere is committed before it is known that the directory is somebody's.
TEST_F(TrainResume, WhoIsRefusedTouchesNoCheckpoint) {
  const std::string first = folder_.file("first"), run = folder_.file("run");
  ended(1, {"--max-steps", "4", "--output-dir", first, "--save-every", "4", "--no-eval"});
  const Words again = {"--max-steps",       "12", "--output-dir", run,        "--save-every", "12",
                       "--checkpoint-hist", "1",  "--no-eval",    "--resume", first};
  ended(1, again);
  EXPECT_THAT(refused(1, again), HasSubstr("already holds a run"));
  EXPECT_EQ(saved_step(), 12);
  EXPECT_TRUE(std::filesystem::exists(run + "/checkpoints/step-00000012"));
}

// The commands for checkpoints, on those of a run.
TEST_F(TrainResume, CheckpointsAreListedInspectedAndVerified) {
  const std::string run = folder_.file("run");
  ended(1, {"--max-steps", "4", "--output-dir", run, "--save-every", "2"});
  const auto say = [&](const Words& words, int code) {
    Job job(Words{LOCKSTEP_PROGRAM, "checkpoint"} + words);
    EXPECT_EQ(job.wait(), code) << job.err();
    return job.out() + job.err();
  };
  const auto listed = nlohmann::json::parse(say({"list", run, "--json"}, 0)).at("checkpoints");
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[0].at("step"), 4);
  EXPECT_EQ(listed[0].at("last"), true);
  EXPECT_EQ(listed[0].at("weights_hash"), hash("run"));
  EXPECT_THAT(say({"list", run}, 0), HasSubstr(hash("run") + "  last  best"));
  const auto inspected = nlohmann::json::parse(say({"inspect", run, "--json"}, 0));
  EXPECT_EQ(inspected.at("step"), 4);
  EXPECT_EQ(inspected.at("extra").at("model"), "mlp_dropout");
  EXPECT_EQ(inspected.at("place"), nlohmann::json::parse(R"({"epoch": 0, "batch": 4, "seen": 0})"));
  EXPECT_THAT(say({"verify", run}, 0), HasSubstr("step-00000002' is whole"));

  const std::string file = run + "/checkpoints/step-00000002/model.safetensors";
  flip_last_bit(file);
  EXPECT_THAT(say({"verify", run}, 1), HasSubstr("step-00000002/model.safetensors': tensor '"));
  std::filesystem::remove(run + "/checkpoints/step-00000002/MANIFEST");
  EXPECT_THAT(say({"verify", run + "/checkpoints/step-00000002"}, 1), HasSubstr("step-00000002/MANIFEST"));
  EXPECT_THAT(say({"verify", folder_.file("none")}, 2), HasSubstr("there is no checkpoint in '"));
  EXPECT_THAT(say({"lst"}, 2), HasSubstr("did you mean 'list'?"));
}

}  // namespace
}  // namespace lockstep
