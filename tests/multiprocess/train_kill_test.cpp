// The real trainer killed in the middle of training: who is blamed, what is left.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/segment.h"
#include "tests/support/image_files.h"
#include "tests/support/train_run.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::By;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::Job;
using testing::pid_of_rank;
using testing::wait_until;

constexpr const char* kWhere = "step [0-9]+, (outside|forward|gather|update|vote|flip|collective)";

// Shared memory with a name would stay: there must be none of ours. Folders are those of tests and fuzzers, which keep
// their files in memory beside us and leave them there when they are killed.
std::set<std::string> named_shared_memory() {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev/shm"))
    if (const std::string name = entry.path().filename(); name.find("lockstep") != name.npos && !entry.is_directory())
      names.insert(name);
  return names;
}

class TrainKill : public ::testing::Test {
 protected:
  // Training that goes on until somebody ends it.
  std::vector<std::string> endless(std::vector<std::string> flags = {}) const {
    flags.insert(flags.end(),
                 {"--dataset", "mnist", "--data-path", set_, "--model", "mlp", "--max-steps", "100000000",
                  "--global-batch-size", "40", "--print-freq", "1", "--output-dir", folder_.file("run"), "--no-eval"});
    return flags;
  }

  // Kills the only worker in an update after its second step; returns where its shared memory is, which is another
  // place for each attempt.
  static std::string kill_in_update(const Job& job, const std::string& last_memory) {
    pid_t worker = 0;
    std::string memory;
    wait_until([&] {
      for (const pid_t pid : job.living())
        if (const std::string found = variable(pid, "LOCKSTEP_SEGMENT"); !found.empty() && found != last_memory) {
          worker = pid;
          memory = found;
        }
      return worker != 0;
    });
    const base::Segment segment = base::Segment::open(memory, 1);
    const base::RankWords& words = segment.control().ranks[0];
    const auto in_update = [&] {
      return base::has_joined(words, segment.control().generation) && words.step.load() > 2 &&
             base::Phase(words.phase.load()) == base::Phase::update;
    };
    wait_until([&] {
      for (int look = 0; look < 1'000'000 && !in_update();) ++look;
      if (!in_update()) return false;
      kill(worker, SIGSTOP);
      wait_until([&] { return testing::process_state(worker) != 'R' && testing::process_state(worker) != 'S'; });
      if (in_update()) return true;
      kill(worker, SIGCONT);
      return false;
    });
    kill(worker, SIGKILL);
    return memory;
  }

  static std::string variable(pid_t pid, const std::string& name) {
    const std::string environment = '\0' + testing::read_file("/proc/" + std::to_string(pid) + "/environ");
    const std::size_t at = environment.find('\0' + name + '=');
    return at == std::string::npos ? "" : environment.substr(at + name.size() + 2).c_str();
  }

  void wait_for_steps(const Job& job) const {
    wait_until([&] { return testing::lines(job.out()).size() >= 20 || !job.err().empty(); });
  }

  void expect_clean_end(const Job& job) const {
    EXPECT_TRUE(job.nothing_left());
    EXPECT_TRUE(named_shared_memory().empty());
    EXPECT_GE(testing::results(testing::read_file(folder_.file("run/metrics.jsonl"))).size(), 20u);
  }

  testing::ScratchFolder folder_;
  const std::string set_ = testing::write_mnist(folder_);
};

TEST_F(TrainKill, AKilledWorkerIsNamedWithStepAndPhase) {
  for (const int victim : {0, 1, 2}) {
    Job job(testing::train_command(By::lockstep, 3, endless({"--logical-shards", "4", "--overwrite"})));
    wait_for_steps(job);
    kill(pid_of_rank(job, victim), SIGKILL);
    EXPECT_EQ(job.wait(), 128 + SIGKILL);
    EXPECT_THAT(job.err(), HasSubstr("rank " + std::to_string(victim) + " failed: killed by SIGKILL"));
    EXPECT_THAT(job.err(), ContainsRegex(kWhere));
    EXPECT_EQ(testing::lines(job.err()).size(), 2u) << job.err();
    expect_clean_end(job);
  }
}

TEST_F(TrainKill, AKilledAgentLeavesNothing) {
  Job job(testing::train_command(By::lockstep, 2, endless()));
  wait_for_steps(job);
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  expect_clean_end(job);
}

// What an event says of speed was measured in the attempt that tells it.
void expect_true_rates(const std::vector<std::string>& metrics) {
  int without = 0;
  for (const std::string& line : metrics) {
    const auto event = nlohmann::json::parse(line);
    if (event.at("event") == "train" && !event.contains("samples_per_second")) {
      ++without;  // told again
      EXPECT_FALSE(event.contains("step_seconds")) << line;
    } else if (event.at("event") == "train") {
      EXPECT_GT(event.at("samples_per_second"), 0) << line;
    }
  }
  EXPECT_EQ(without, 2) << "once for each restart";
  const auto done = nlohmann::json::parse(metrics.back());
  EXPECT_LT(done.at("attempt_steps"), done.at("steps"));
  EXPECT_GT(done.at("attempt_steps"), 0);
}

// What the report's page tells: why the starts before the last one ended, and what that cost.
void expect_faults(const std::vector<std::string>& metrics, const std::vector<int>& victims) {
  std::vector<nlohmann::json> faults;
  for (const std::string& line : metrics)
    if (auto event = nlohmann::json::parse(line); event.at("event") == "fault") faults.push_back(std::move(event));
  ASSERT_EQ(faults.size(), victims.size());
  for (std::size_t i = 0; i < victims.size(); ++i) {
    EXPECT_EQ(faults[i].at("restart_count"), i + 1);
    EXPECT_GT(faults[i].at("step"), 0);
    EXPECT_GT(faults[i].at("lost_seconds"), 0);
    EXPECT_THAT(faults[i].at("cause").get<std::string>(), HasSubstr("rank " + std::to_string(victims[i]) + ", step "));
  }
}

// What `lockstep report` draws of them.
void expect_page_with_faults(const std::string& run, const std::string& file) {
  Job report({LOCKSTEP_PROGRAM, "report", run, "-o", file});
  EXPECT_EQ(report.wait(), 0) << report.err();
  const std::string page = testing::read_file(file);
  EXPECT_THAT(page, ContainsRegex("<td>fault</td><td>20[^<]* UTC</td><td>rank 1, step [^<]* s lost</td>"));
  EXPECT_THAT(page, ContainsRegex("<td>fault</td><td>20[^<]* UTC</td><td>rank 0, step [^<]* s lost</td>"));
  EXPECT_THAT(page, HasSubstr("<td>started again</td>"));
}

// The run that nobody disturbs, and the same with each rank killed once on the way.
TEST_F(TrainKill, WithRestartsTheSameBitsAsUndisturbed) {
  const std::vector<std::string> flags = {"--dataset",    "mnist", "--data-path",  set_,   "--model",     "convnet",
                                          "--opt",        "adam",  "--lr",         "1e-3", "--epochs",    "5",
                                          "--batch-size", "25",    "--print-freq", "1",    "--output-dir"};
  const auto train = [&](const std::string& run, std::vector<std::string> more) {
    std::vector<std::string> all = flags;
    all.push_back(folder_.file(run));
    all.insert(all.end(), more.begin(), more.end());
    return testing::train_command(By::lockstep, 2, all);
  };
  Job calm(train("calm", {}));
  ASSERT_EQ(calm.wait(), 0) << calm.err();

  Job job(train("run", {"--max-restarts", "2"}));
  for (const int victim : {1, 0}) {
    const std::size_t lines = testing::lines(job.out()).size();
    wait_until([&] { return testing::lines(job.out()).size() >= lines + 5; });
    kill(pid_of_rank(job, victim), SIGKILL);
    const std::string restart = "restart " + std::to_string(2 - victim) + " of 2";
    wait_until([&] { return job.err().find(restart) != std::string::npos; });
  }
  EXPECT_EQ(job.wait(), 0) << job.err();
  const std::string undisturbed = testing::read_file(folder_.file("calm/metrics.jsonl"));
  const std::string disturbed = testing::read_file(folder_.file("run/metrics.jsonl"));
  EXPECT_EQ(testing::weights_hash(disturbed), testing::weights_hash(undisturbed));
  // No result is missing, none differs; the one at each restart may stand twice.
  const auto unique = [](std::vector<std::string> lines) { return std::set<std::string>(lines.begin(), lines.end()); };
  EXPECT_EQ(unique(testing::results(disturbed)), unique(testing::results(undisturbed)));
  expect_true_rates(testing::lines(disturbed));
  expect_faults(testing::lines(disturbed), {1, 0});
  expect_page_with_faults(folder_.file("run"), folder_.file("report.html"));
  EXPECT_EQ(job.out().find(" 0 images/s"), std::string::npos) << job.out();
  EXPECT_TRUE(job.nothing_left());
}

// A worker that is alone is killed in the middle of writing a buffer; the agent holds what it leaves.
TEST_F(TrainKill, AloneAndKilledInTheUpdateTheSameBitsAsUndisturbed) {
  const auto train = [&](const std::string& run, std::vector<std::string> more) {
    std::vector<std::string> all = {"--dataset",    "mnist", "--data-path",  set_,   "--model",      "mlp",
                                    "--opt",        "adam",  "--lr",         "1e-3", "--epochs",     "100",
                                    "--batch-size", "25",    "--print-freq", "1",    "--output-dir", folder_.file(run)};
    all.insert(all.end(), more.begin(), more.end());
    return testing::train_command(By::lockstep, 1, all);
  };
  Job calm(train("calm", {}));
  ASSERT_EQ(calm.wait(), 0) << calm.err();

  Job job(train("run", {"--max-restarts", "2"}));
  std::string before;
  for (const int restart : {1, 2}) {
    before = kill_in_update(job, before);
    wait_until([&] { return job.err().find("restart " + std::to_string(restart) + " of 2") != std::string::npos; });
  }
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.err(), ContainsRegex("step [0-9]+, update"));
  EXPECT_EQ(testing::weights_hash(testing::read_file(folder_.file("run/metrics.jsonl"))),
            testing::weights_hash(testing::read_file(folder_.file("calm/metrics.jsonl"))));
}

TEST_F(TrainKill, CtrlC) {
  Job job(testing::train_command(By::lockstep, 2, endless()));
  wait_for_steps(job);
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 128 + SIGINT);
  EXPECT_THAT(job.err(), ::testing::Not(HasSubstr("error")));
  expect_clean_end(job);
}

// As under torchrun, which reads no control page: the survivor itself must notice and say it.
TEST_F(TrainKill, WithoutAnAgentTheSurvivorSaysWhoDied) {
  std::vector<std::string> command = endless();
  command.insert(command.begin(), {LOCKSTEP_PROGRAM, "train"});
  Job zero(command, testing::rank_variables(0, 2, 29521));
  Job one(command, testing::rank_variables(1, 2, 29521));
  wait_for_steps(zero);
  one.signal(SIGKILL);
  EXPECT_EQ(zero.wait(), 1);
  EXPECT_EQ(one.wait(), 128 + SIGKILL);
  EXPECT_EQ(testing::lines(zero.err()).size(), 1u) << zero.err();
  EXPECT_THAT(zero.err(), HasSubstr("rank 1"));
  EXPECT_THAT(zero.err(), ContainsRegex("step [0-9]+"));
  expect_clean_end(zero);
}

TEST_F(TrainKill, AStoppedWorkerIsWaitedForUntilTheTimeout) {
  Job job(testing::train_command(By::lockstep, 2, endless({"--timeout", "3"})));
  wait_for_steps(job);
  kill(pid_of_rank(job, 1), SIGSTOP);
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), HasSubstr("rank 1"));
  EXPECT_THAT(job.err(), ContainsRegex(kWhere));
  expect_clean_end(job);
}

TEST_F(TrainKill, ARankThatNeverComesIsWaitedForUntilTheTimeout) {
  std::vector<std::string> command = endless({"--timeout", "1"});
  command.insert(command.begin(), {LOCKSTEP_PROGRAM, "train"});
  Job zero(command, testing::rank_variables(0, 2, 29522));
  EXPECT_EQ(zero.wait(), 1);
  EXPECT_EQ(testing::lines(zero.err()).size(), 1u) << zero.err();
  EXPECT_THAT(zero.err(), HasSubstr("ranks did not come within 1 s: 1"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("run")));
}

}  // namespace
}  // namespace lockstep
