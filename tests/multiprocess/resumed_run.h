#pragma once

// Runs of lockstep train that save, end, and go on.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/train_run.h"

namespace lockstep {

class TrainResume : public ::testing::Test {
 protected:
  using Words = testing::Words;
  using Job = testing::Job;

  // 250 samples in batches of 24: 11 steps an epoch. What `more` has goes before.
  Words flags(Words more) const {
    using testing::operator+;
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
    return Job(testing::train_command(testing::By::lockstep, processes, flags(more)));
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

}  // namespace lockstep
