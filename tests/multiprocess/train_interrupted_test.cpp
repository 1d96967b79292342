// lockstep train is killed, crashes or is asked to end, and goes on to the bits of a run that nobody interrupted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <sstream>

#include "tests/multiprocess/resumed_run.h"
#include "tests/support/control_group.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::Job;
using testing::Words;
using testing::operator+;

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
  void interrupt_at_random(const std::vector<int>& processes);
};
INSTANTIATE_TEST_SUITE_P(Ways, TrainResumeWays,
                         ::testing::Values(Way{"Sgd", {"--opt", "sgd", "--momentum", "0.9"}},
                                           Way{"AdamBf16Augmented",
                                               {"--opt", "adam", "--amp", "bf16", "--model", "mlp_dropout",
                                                "--transforms", "random_resized_crop=28,hflip,auto_augment,to_tensor"}},
                                           Way{"Fp16EmaMixup",
                                               {"--opt", "adamw", "--amp", "fp16", "--model-ema", "--model-ema-steps",
                                                "2", "--model-ema-decay", "0.99", "--mixup-alpha", "0.3",
                                                "--lr-scheduler", "steplr", "--lr-step-size", "1",
                                                "--norm-weight-decay", "0", "--clip-grad-norm", "1"}},
                                           Way{"Plateau",
                                               {"--momentum", "0.5", "--lr", "0.1", "--lr-scheduler",
                                                "reducelronplateau", "--lr-patience", "0", "--lr-gamma", "0.5"}}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Agent and workers, as many as there are of them.
std::vector<pid_t> workers_of(const Job& job) {
  std::vector<pid_t> found;
  for (int rank = 0; rank < 3; ++rank) try {
      found.push_back(testing::pid_of_rank(job, rank));
    } catch (const std::runtime_error&) {  // of fewer
    }
  return found;
}
void kill_workers(const Job& job) {
  for (const pid_t pid : workers_of(job)) kill(pid, SIGKILL);
}
void kill_all(const Job& job) {
  for (const pid_t pid : job.living()) kill(pid, SIGKILL);
}

struct Interruption {
  const char* name;
  std::function<void(const Job&)> cause;
  int code;
};

// The numbers by which a test interrupts at random: those of an earlier one by LOCKSTEP_SEED.
std::mt19937 told_random() {
  const char* const given = std::getenv("LOCKSTEP_SEED");
  const unsigned seed = given != nullptr ? unsigned(std::stoul(given)) : std::random_device{}();
  std::cout << "LOCKSTEP_SEED=" << seed << std::endl;
  return std::mt19937(seed);
}

// Each time at any instant, in any order; `processes` are there the first time, the second time, ...
void TrainResumeWays::interrupt_at_random(const std::vector<int>& processes) {
  const Words way = GetParam().flags + epochs("16");
  // One run for both tests of a way.
  static std::map<std::string, std::string> undisturbed;
  std::string& expected = undisturbed[GetParam().name];
  if (expected.empty()) {
    ended(2, way + Words{"--output-dir", folder_.file("undisturbed")});
    expected = hash("undisturbed");
  }
  const Words saving = way + Words{"--output-dir", folder_.file("run"), "--save-every", "3", "--resume", "auto"};
  std::mt19937 random = told_random();
  std::vector<Interruption> interruptions = {
      {"a worker", [](const Job& job) { kill(testing::pid_of_rank(job, 0), SIGKILL); }, 137},
      {"all workers", kill_workers, 137},
      {"the agent", [](const Job& job) { kill(job.pid(), SIGKILL); }, 137},
      {"all of them", kill_all, 137},
      {"asked to end", [](const Job& job) { kill(job.pid(), SIGTERM); }, 75}};
  std::ranges::shuffle(interruptions, random);
  for (std::size_t i = 0; i < interruptions.size(); ++i) {
    SCOPED_TRACE(interruptions[i].name);
    Job job = start(processes[i % processes.size()], saving);
    const std::size_t lines = reported() + 4 + random() % 12;
    testing::wait_until([&] { return reported() >= lines || testing::process_state(job.pid()) == 'Z'; });
    ASSERT_NE(testing::process_state(job.pid()), 'Z') << "it ended before it was interrupted: " << job.err();
    interruptions[i].cause(job);
    ASSERT_EQ(job.wait(), interruptions[i].code) << job.err();
    testing::wait_until([&] { return job.living().empty(); });
  }
  ended(2, saving);
  EXPECT_EQ(hash("run"), expected);
}

TEST_P(TrainResumeWays, InterruptedAtRandomItEndsWithTheSameBits) { interrupt_at_random({2}); }

TEST_P(TrainResumeWays, InterruptedAtRandomAmongOtherNumbersOfProcessesItEndsWithTheSameBits) {
  interrupt_at_random({1, 3});
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
      {"every worker is killed", kill_workers, 137, "is saved in '"},
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

// What is charged to a control group and cannot be taken back from it: cache can.
std::int64_t kept_bytes(const testing::OwnControlGroup& group) {
  std::istringstream stat(testing::read_file(group.file("memory.stat")));
  std::int64_t bytes = 0, value = 0;
  for (std::string name; stat >> name >> value;)
    if (name == (group.version() == 2 ? "anon" : "rss") || name == "shmem") bytes += value;
  return bytes;
}

// A queue that gives a job so long, again and again: where it is cut decides nothing.
TEST_F(TrainResume, CutByTimeItEndsWithTheSameBits) {
  const Words way = {"--epochs",      "3", "--momentum", "0.5", "--lr", "0.3", "--lr-scheduler", "reducelronplateau",
                     "--lr-patience", "0", "--lr-gamma", "0.5"};
  ended(1, way + Words{"--output-dir", folder_.file("undisturbed")});
  const Words saving = way + Words{"--output-dir", folder_.file("run"), "--save-every", "1ep", "--resume", "auto"};
  for (int i = 0; i < 6; ++i) ended(1, saving + Words{"--max-time", "1e-6"});
  ended(1, saving);
  EXPECT_EQ(hash("run"), hash("undisturbed"));
}

// Launcher, workers and who saves share the group, as in a container. Its largest process is a worker.
TEST_F(TrainResume, KilledForItsMemoryItSaysSoAndTheLastCommittedStepIsSaved) {
  const testing::OwnControlGroup group("memory", "memory.limit_in_bytes", "memory.max");
  if (!group.made()) GTEST_SKIP() << group.why_not();
  const bool v2 = group.version() == 2;
  const auto within = [&](const Words& command) {
    return Words{"/bin/sh", "-c", "echo $$ > " + group.file("cgroup.procs") + " && exec \"$@\"", "sh"} + command;
  };
  Job job(within(testing::train_command(
      testing::By::lockstep, 2,
      flags({"--epochs", "100000", "--no-eval", "--output-dir", folder_.file("run"), "--save-every", "1000000s"}))));
  testing::wait_until([&] { return reported() >= 6; });
  const std::string limit = std::to_string(kept_bytes(group) + (32 << 20));
  ASSERT_TRUE(group.write(v2 ? "memory.max" : "memory.limit_in_bytes", limit));
  group.write(v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes", v2 ? "0" : limit);
  Job more(within({"/bin/sh", "-c", "head -c 64M /dev/zero | tail > /dev/null"}));
  EXPECT_EQ(job.wait(), 137) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("cause: out of memory: the kernel killed it (memory limit of its control group: "));
  EXPECT_THAT(job.err(), HasSubstr("is saved in '"));
  EXPECT_GE(saved_step(), last_told());
  more.wait();
}

// A whole checkpoint to which nothing leads would be passed over by who goes on.
TEST_F(TrainResume, ACheckpointThatItsProgramCouldNotLinkIsLinkedByTheLauncher) {
  Job job({LOCKSTEP_PROGRAM, "run", "-n", "1", UNLINKED_WORKER, folder_.file("saved")});
  EXPECT_EQ(job.wait(), 137) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("step 2, the last one that was committed, is saved in '"));
  EXPECT_EQ(std::filesystem::read_symlink(folder_.file("saved/last")), "step-00000002");
}

// Each attempt goes on from the state in memory; the launcher saves when the last one is over.
TEST_F(TrainResume, WhenRestartsAreUsedUpTheLastCommittedStepIsSaved) {
  const Words endless = {"--epochs", "1000",           "--no-eval", "--output-dir", folder_.file("run"), "--save-every",
                         "1000s",    "--max-restarts", "2"};
  Job job = start(2, endless);
  for (int attempt = 0; attempt < 3; ++attempt) {
    const std::size_t before = reported();
    testing::wait_until([&] { return reported() >= before + 6; });
    signal_one(job, SIGKILL);
    const std::string restart = "restart " + std::to_string(attempt + 1) + " of 2";
    if (attempt < 2) testing::wait_until([&] { return job.err().find(restart) != std::string::npos; });
  }
  EXPECT_EQ(job.wait(), 137) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("is saved in '"));
  EXPECT_GE(saved_step(), last_told());
  EXPECT_GE(last_told(), 6);
}

}  // namespace
}  // namespace lockstep
