// lockstep train saves, is killed, and goes on from its checkpoints to the bits of a run that nobody interrupted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "tests/support/train_run.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using testing::By;
using ::testing::HasSubstr;
using testing::Job;
using testing::Words;
using testing::operator+;

class TrainResume : public ::testing::Test {
 protected:
  // 250 samples in batches of 24: 11 steps an epoch. What `more` has goes before.
  Words flags(Words more) const {
    const std::vector<Words> usual = {{"--dataset", "mnist"},
                                      {"--data-path", set_},
                                      {"--model", "mlp_dropout"},
                                      {"--global-batch-size", "24"},
                                      {"--logical-shards", "4"},
                                      {"--print-freq", "1"},
                                      {"--lr", "0.01"}};
    for (const Words& flag : usual)
      if (std::ranges::find(more, flag[0]) == more.end()) more = more + flag;
    return more;
  }
  Job start(int processes, const Words& more) const {
    return Job(testing::train_command(By::lockstep, processes, flags(more)));
  }

  // What it says on stderr.
  std::string ended(int processes, const Words& more) const {
    Job job = start(processes, more);
    EXPECT_EQ(job.wait(), 0) << job.err();
    return job.err();
  }
  std::string hash(const std::string& run) const {
    return testing::weights_hash(testing::read_file(folder_.file(run + "/metrics.jsonl")));
  }
  // Lines of the run's metrics.
  std::size_t reported() const {
    const std::string file = folder_.file("run/metrics.jsonl");
    return std::filesystem::exists(file) ? testing::lines(testing::read_file(file)).size() : 0;
  }
  // The last step in the run's metrics, and that of its last checkpoint.
  std::int64_t last_told() const {
    std::int64_t step = 0;
    for (const std::string& line : testing::lines(testing::read_file(folder_.file("run/metrics.jsonl"))))
      step = std::max(step, nlohmann::json::parse(line).value("step", std::int64_t(0)));
    return step;
  }
  std::int64_t saved_step() const {
    const std::string last = std::filesystem::read_symlink(folder_.file("run/checkpoints/last")).string();
    return std::stoll(last.substr(last.find('-') + 1));
  }
  nlohmann::json saved_state() const {
    return nlohmann::json::parse(testing::read_file(folder_.file("run/checkpoints/last/state.json")));
  }
  std::string refused(int processes, const Words& more) const {
    Job job = start(processes, more);
    EXPECT_EQ(job.wait(), 2);
    return job.err();
  }

  testing::ScratchFolder folder_;
  const std::string set_ = testing::write_mnist(folder_);
};

struct Way {
  const char* name;
  Words flags;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class TrainResumeWays : public TrainResume, public ::testing::WithParamInterface<Way> {
 protected:
  // Only a plateau is worth the time of evaluations.
  static Words epochs(const std::string& count) {
    const Words words = {"--epochs", count};
    return std::string(GetParam().name) == "Plateau" ? words : words + Words{"--no-eval"};
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, TrainResumeWays,
                         ::testing::Values(Way{"Sgd", {"--opt", "sgd", "--momentum", "0.9"}},
                                           Way{"AdamBf16Augmented",
                                               {"--opt", "adam", "--amp", "bf16", "--model", "convnet", "--transforms",
                                                "random_resized_crop=28,hflip,auto_augment,to_tensor"}},
                                           Way{"Fp16EmaMixup",
                                               {"--opt", "adamw", "--amp", "fp16", "--model-ema", "--model-ema-steps",
                                                "2", "--model-ema-decay", "0.99", "--mixup-alpha", "0.3",
                                                "--lr-scheduler", "steplr", "--lr-step-size", "1",
                                                "--norm-weight-decay", "0", "--clip-grad-norm", "1"}},
                                           Way{"Plateau",
                                               {"--momentum", "0.5", "--lr", "0.1", "--lr-scheduler",
                                                "reducelronplateau", "--lr-patience", "0", "--lr-gamma", "0.5"}}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Agent and workers at once, at any instant; then again with another number of processes.
TEST_P(TrainResumeWays, KilledAsAWholeItEndsWithTheSameBits) {
  const Words way = GetParam().flags + epochs("12");
  ended(2, way + Words{"--output-dir", folder_.file("undisturbed")});
  const Words saving = way + Words{"--output-dir", folder_.file("run"), "--save-every", "3", "--resume", "auto"};
  std::mt19937 random(std::random_device{}());
  int kills = 0;
  for (int attempt = 0; attempt < 4; ++attempt) {
    Job job = start(1 + attempt % 3, saving);
    const std::size_t lines = reported() + 4 + random() % 12;
    testing::wait_until([&] { return reported() >= lines || testing::process_state(job.pid()) == 'Z'; });
    for (const pid_t pid : job.living()) kills += kill(pid, SIGKILL) == 0 ? 1 : 0;
    job.wait();
    testing::wait_until([&] { return job.living().empty(); });
  }
  EXPECT_GT(kills, 0);
  ended(2, saving);
  EXPECT_EQ(hash("run"), hash("undisturbed"));
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

// How a job comes to its end, and its exit code.
struct End {
  const char* name;
  std::function<void(const Job&)> cause;
  int code;
  std::string told;
};

void signal_one(const Job& job, int signal) { kill(testing::pid_of_rank(job, 1), signal); }

// No checkpoint is ever due: what is there at the end was saved then, by the ranks or by the launcher.
TEST_P(TrainResumeWays, WhateverEndsItTheLastCommittedStepIsSaved) {
  const Words way = GetParam().flags + epochs("25");
  ended(2, way + Words{"--output-dir", folder_.file("undisturbed")});
  const Words saving = way + Words{"--output-dir", folder_.file("run"), "--save-every",   "1000s", "--resume",
                                   "auto",         "--stop-on",         "SIGTERM,SIGUSR1"};
  const std::vector<End> ends = {
      {"a worker is killed", [](const Job& job) { signal_one(job, SIGKILL); }, 137, "is saved in '"},
      {"the launcher is asked to end", [](const Job& job) { kill(job.pid(), SIGTERM); }, 75, "by a signal; saved in '"},
      {"the launcher gets another signal", [](const Job& job) { kill(job.pid(), SIGUSR1); }, 75, "saved in '"},
      {"a worker is asked to end", [](const Job& job) { signal_one(job, SIGUSR1); }, 75, "by a signal; saved in '"},
      {"a worker does not comply",
       [](const Job& job) {
         const pid_t worker = testing::pid_of_rank(job, 1);
         kill(worker, SIGSTOP);
         testing::wait_until([&] { return testing::process_state(worker) == 'T'; });
         kill(job.pid(), SIGTERM);
       },
       143, "is saved in '"},
      {"Ctrl-C", [](const Job& job) { kill(job.pid(), SIGINT); }, 130, "is saved in '"}};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    Job job = start(i % 2 == 0 ? 2 : 3, saving);
    const std::size_t before = reported();
    testing::wait_until([&] { return reported() >= before + 6 || testing::process_state(job.pid()) == 'Z'; });
    ends[i].cause(job);
    EXPECT_EQ(job.wait(), ends[i].code) << ends[i].name << '\n' << job.err();
    EXPECT_THAT(job.err(), HasSubstr(ends[i].told)) << ends[i].name;
    EXPECT_GE(saved_step(), last_told()) << ends[i].name;
    const nlohmann::json place = saved_state().at("place");  // 11 steps an epoch, the end of one still its own
    EXPECT_EQ(place.at("epoch").get<std::int64_t>() * 11 + place.at("batch").get<std::int64_t>(), saved_step());
  }
  ended(2, saving);
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
  std::string bytes = testing::read_file(file);
  bytes.back() ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  EXPECT_THAT(say({"verify", run}, 1), HasSubstr("step-00000002/model.safetensors': tensor '"));
  EXPECT_THAT(say({"verify", folder_.file("none")}, 2), HasSubstr("there is no checkpoint in '"));
  EXPECT_THAT(say({"lst"}, 2), HasSubstr("did you mean 'list'?"));
}

}  // namespace
}  // namespace lockstep
