// What a run holds, and until when.

#include "lockstep/train/loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/checkpoint/store/state_json.h"
#include "lockstep/data/tensor_batches.h"
#include "lockstep/train/own_names.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/what_of.h"
#include "tests/unit/train/before_fsync.h"

namespace lockstep::train {
namespace {

std::string lock_file;  // set before there is another thread
std::atomic<bool> was_free{false};

bool is_free() {
  const base::UniqueFd file(::open(lock_file.c_str(), O_RDWR | O_CLOEXEC));
  return file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

// Stands still for a second, once, or until the lock of the run directory is free.
void look() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!was_free && std::chrono::steady_clock::now() < until) was_free = is_free();
  before_fsync = nullptr;
}

void stand_still_once() {
  before_fsync = nullptr;
  std::this_thread::sleep_for(std::chrono::milliseconds(2400));
}

struct Net : torch::nn::Module {
  at::Tensor forward(const at::Tensor& rows) { return layer(rows); }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(3, 2));
};

struct FailingNet : torch::nn::Module {
  at::Tensor forward(const at::Tensor& rows) {
    if (++passes == 2) throw Error("the second step fails");
    return layer(rows);
  }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(3, 2));
  int passes = 0;
};

TEST(Loop, TheDirectoryIsLockedUntilTheLastSaveHasEnded) {
  const testing::ScratchFolder folder;
  const Additions additions{
      .models = {{"net", [](const models::ImageTask&) { return std::make_shared<FailingNet>(); }}},
      .datasets = {{.name = "rows", .classes = 2, .samples = [](const Opening&) {
                      return data::tensors(at::ones({8, 3}), at::zeros({8}, at::kLong));
                    }}}};
  const std::string run = folder.file("run");
  const char* const argv[] = {"net",          "--no-eval", "--batch-size", "2",    "--epochs",     "2",
                              "--save-every", "1",         "--resume",     "auto", "--output-dir", run.c_str()};
  const Options options = parse_options(int(std::size(argv)), argv, names_of(additions, "net")).options;
  lock_file = run + "/run.lock";
  before_fsync = look;
  support::run_ranks(support::RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
    EXPECT_EQ(support::what_of([&] { Loop(options, comm::World({}, group), additions).run(); }),
              "the second step fails");
  });
  EXPECT_EQ(before_fsync, nullptr) << "it was saved";
  EXPECT_FALSE(was_free);
  EXPECT_TRUE(is_free()) << "then it is";
  EXPECT_TRUE(std::filesystem::exists(run + "/checkpoints/step-00000001"));
}

// Each step behind the second in which one fell due was, too: of one save the report said that thousands were left out.
TEST(Loop, ASaveThatIsLeftOutIsDueAgainWhenTheSecondsHavePassed) {
  const testing::ScratchFolder folder;
  const Additions additions{.models = {{"net", [](const models::ImageTask&) { return std::make_shared<Net>(); }}},
                            .datasets = {{.name = "rows", .classes = 2, .samples = [](const Opening&) {
                                            return data::tensors(at::ones({8, 3}), at::zeros({8}, at::kLong));
                                          }}}};
  const std::string run = folder.file("run");
  const char* const argv[] = {"net",          "--no-eval", "--batch-size", "2",       "--epochs",     "10000000",
                              "--max-time",   "3",         "--print-freq", "1000000", "--save-every", "1s",
                              "--output-dir", run.c_str()};
  const Options options = parse_options(int(std::size(argv)), argv, names_of(additions, "net")).options;
  before_fsync = stand_still_once;
  support::run_ranks(support::RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
    EXPECT_EQ(Loop(options, comm::World({}, group), additions).run(), kExitDone);
  });
  std::int64_t left_out = -1;
  std::ifstream lines(run + "/metrics.jsonl");
  for (std::string line; std::getline(lines, line);)
    if (const auto event = nlohmann::json::parse(line); event.at("event") == "checkpoint")
      left_out = event.value("skipped", std::int64_t(0));
  EXPECT_GE(left_out, 1) << "one took more than two seconds";
  EXPECT_LE(left_out, 2) << "for each second one";
}

// Else the best one might be none that is saved.
TEST(Loop, WhatAnEvaluationHasFoundWaitsForASaveThatTakesLong) {
  const testing::ScratchFolder folder;
  const Additions additions{.models = {{"net", [](const models::ImageTask&) { return std::make_shared<Net>(); }}},
                            .datasets = {{.name = "rows", .classes = 2, .samples = [](const Opening&) {
                                            return data::tensors(at::ones({8, 3}), at::zeros({8}, at::kLong));
                                          }}}};
  const std::string run = folder.file("run");
  // Of four steps an epoch: the save of the third is running when the first epoch has been evaluated.
  const char* const argv[] = {"net", "--batch-size", "2",        "--epochs", "2", "--save-every",
                              "3",   "--output-dir", run.c_str()};
  const Options options = parse_options(int(std::size(argv)), argv, names_of(additions, "net")).options;
  before_fsync = [] {
    before_fsync = nullptr;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  };
  support::run_ranks(support::RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
    EXPECT_EQ(Loop(options, comm::World({}, group), additions).run(), kExitDone);
  });
  for (const char* step : {"/checkpoints/step-00000004", "/checkpoints/step-00000008"})
    EXPECT_TRUE(checkpoint::read_state(run + step).metric.has_value()) << step;
}

// The checkpoint of the last step would lose its metric, and another one would be the best.
TEST(Loop, ASignalWhileTheBestOfAFinishedRunIsEvaluatedLeavesItsCheckpointsAsTheyAre) {
  const testing::ScratchFolder folder;
  int made = 0;
  bool asks = false;
  const auto make = [&](const models::ImageTask&) {
    if (++made == 2 && asks) raise(SIGTERM);  // the first is trained, the second has the weights of the best
    return std::make_shared<Net>();
  };
  const Additions additions{.models = {{"net", make}},
                            .datasets = {{.name = "rows", .classes = 2, .samples = [](const Opening&) {
                                            return data::tensors(at::ones({8, 3}), at::zeros({8}, at::kLong));
                                          }}}};
  const std::string run = folder.file("run"), last = run + "/checkpoints/step-00000008";
  const char* const argv[] = {"net",         "--batch-size", "2",    "--epochs",     "2",        "--save-every", "1ep",
                              "--eval-best", "--resume",     "auto", "--output-dir", run.c_str()};
  const Options options = parse_options(int(std::size(argv)), argv, names_of(additions, "net")).options;
  const auto code = [&] {
    int found = -1;
    made = 0;
    support::run_ranks(support::RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
      found = Loop(options, comm::World({}, group), additions).run();
    });
    return found;
  };
  ASSERT_EQ(code(), kExitDone);
  const checkpoint::SavedState before = checkpoint::read_state(last);
  const auto best = std::filesystem::read_symlink(run + "/checkpoints/best");
  ASSERT_TRUE(before.metric.has_value());
  asks = true;
  EXPECT_EQ(code(), kExitStopped);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(checkpoint::read_state(last).metric, before.metric);
  EXPECT_EQ(checkpoint::read_state(last).extra, before.extra);
  EXPECT_EQ(std::filesystem::read_symlink(run + "/checkpoints/best"), best);
}

}  // namespace
}  // namespace lockstep::train
