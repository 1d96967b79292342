#pragma once

// Agents of a job over several nodes, on a loopback address of the test's own.

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/job.h"

namespace lockstep::testing {

// An address that no other process uses, so every port of it is free.
inline std::string own_address() {
  static int next = 0;
  return "127." + std::to_string(1 + next++ % 200) + "." + std::to_string(getpid() / 250 % 250) + "." +
         std::to_string(1 + getpid() % 250);
}

class NodesTest : public ::testing::Test {
 protected:
  // An agent of the job, with flags of its own and a script.
  Job& agent(std::vector<std::string> flags, const std::string& script,
             const std::vector<std::string>& variables = {}) {
    std::vector<std::string> command{LOCKSTEP_PROGRAM,   "run", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                                     address_ + ":29400"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"sh", "-c", script});
    jobs_.push_back(std::make_unique<Job>(command, variables));
    return *jobs_.back();
  }

  // What all agents have printed.
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    for (const auto& job : jobs_)
      for (const std::string& line : testing::lines(job->out())) all.push_back(line);
    return all;
  }

  void expect_nothing_left() const {
    for (const auto& job : jobs_) EXPECT_TRUE(job->nothing_left());
  }

  const std::string address_ = own_address();
  std::vector<std::unique_ptr<Job>> jobs_;
};

}  // namespace lockstep::testing
