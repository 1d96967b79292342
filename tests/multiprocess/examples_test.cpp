// The examples learn, and their weights are those of one process that nobody disturbs, however many processes there are
// and whenever one of them is killed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include "lockstep/base/error.h"
#include "tests/support/image_files.h"
#include "tests/support/terminal.h"
#include "tests/support/train_run.h"

namespace lockstep {
namespace {

using testing::Job;
using testing::Words;
using testing::operator+;

class Examples : public ::testing::Test {
 protected:
  // Kills a rank some time behind the first line, in the middle of an epoch as likely as not. A job that was over
  // before shows nothing, and is tried again.
  static std::string weights_with_a_kill(const Words& command) { return lines_with_a_kill(command).back(); }

  static std::vector<std::string> lines_with_a_kill(const Words& command) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      Job job(Words{LOCKSTEP_PROGRAM, "run", "-n", "2", "--max-restarts", "1"} + command);
      job.wait_for_lines(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(17 * (attempt % 4)));
      try {
        kill(testing::pid_of_rank(job, attempt % 2), SIGKILL);
      } catch (const std::runtime_error&) {  // gone
      }
      EXPECT_EQ(job.wait(), 0) << job.err();
      if (job.err().find("restart 1 of 1") != std::string::npos) return testing::lines(job.out());
    }
    throw std::runtime_error("no worker could be killed in time");
  }

  // The last line but one says what it has learned, the last one its weights.
  static void expect_learns_and_outlives(const Words& command, const char* learned) {
    Job alone(command);
    ASSERT_EQ(alone.wait(), 0) << alone.err();
    const std::vector<std::string> lines = testing::lines(alone.out());
    ASSERT_GE(lines.size(), 2u);
    EXPECT_THAT(lines[lines.size() - 2], ::testing::ContainsRegex(learned));
    ASSERT_THAT(lines.back(), ::testing::StartsWith("weights "));
    EXPECT_EQ(weights_with_a_kill(command), lines.back());
  }

  // The launcher is asked to end behind the first line; returns the name of the folder that the program has saved to.
  // One that was done before shows nothing, and is tried again.
  static std::string stopped_folder(const std::function<Words(const std::string& folder)>& command) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      std::string folder = "asked-" + std::to_string(attempt);
      Job job(Words{LOCKSTEP_PROGRAM, "run", "-n", "2"} + command(folder));
      job.wait_for_lines(1);
      kill(job.pid(), SIGTERM);
      const int code = job.wait();
      if (code == lockstep::kExitStopped) return folder;
      EXPECT_EQ(code, 0) << job.err();
    }
    throw std::runtime_error("no job could be asked in time");
  }

  testing::ScratchFolder folder_;
};

TEST_F(Examples, OwnLoop) { expect_learns_and_outlives({EXAMPLES "own_loop"}, "^epoch 10  loss 0\\.0"); }

TEST_F(Examples, OwnDataset) { expect_learns_and_outlives({EXAMPLES "own_dataset"}, "^epoch 5  accuracy 0\\.[89]"); }

TEST_F(Examples, TableRegression) { expect_learns_and_outlives({EXAMPLES "table_regression"}, "^epoch 30  rmse 0\\."); }

TEST_F(Examples, Spawn) {
  Job job({EXAMPLES "13_spawn", "3"});
  ASSERT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.out(), ::testing::MatchesRegex("3 processes: y = (3|2\\.99|3\\.00).* x \\+ (1|0\\.99|1\\.00).*\n"));
}

// The whole trainer: the same bits on any number of processes, in its own way through a kill and from a checkpoint.
TEST_F(Examples, OwnModel) {
  const Words flags = {"--epochs", "2", "--opt", "adam", "--logical-shards", "2", "--global-batch-size", "256"};
  const Words command = Words{EXAMPLES "11_own_model"} + flags;
  Job alone(command);
  ASSERT_EQ(alone.wait(), 0) << alone.err();
  EXPECT_THAT(alone.out(), ::testing::ContainsRegex("epoch 2/2  evaluation: loss 0\\.[0-9]+, accuracy 9"));
  const auto hash = [](const Job& job) { return job.out().substr(job.out().rfind("weights ")); };
  const Words saving = {"--save-every", "1ep", "--output-dir", folder_.file("run")};
  const Words on_two = Words{LOCKSTEP_PROGRAM, "run", "-n", "2"} + command + saving;
  Job first(on_two + Words{"--max-steps", "40"});
  ASSERT_EQ(first.wait(), 0) << first.err();
  Job second(on_two + Words{"--resume", "last"});
  ASSERT_EQ(second.wait(), 0) << second.err();
  EXPECT_THAT(second.out(), ::testing::HasSubstr("epoch 2/2"));
  EXPECT_EQ(hash(second), hash(alone));
  EXPECT_THAT(testing::read_file(folder_.file("run/config.json")), ::testing::HasSubstr("\"model\": \"net\""));
  const std::string killed = weights_with_a_kill(command);
  EXPECT_EQ(killed.substr(killed.rfind("weights ")) + "\n", hash(alone));
  Job wrong(Words{LOCKSTEP_PROGRAM, "run", "-n", "2"} + command + Words{"--head", "2"});
  EXPECT_EQ(wrong.wait(), 2);
  EXPECT_THAT(wrong.err(), ::testing::HasSubstr("--head 2 has no meaning for --model net, which is the program's own"));
}

// Early stopping ends it, a kill and another number of processes change nothing, and a second start has nothing to do.
TEST_F(Examples, Trainer) {
  const auto command = [&](const std::string& folder) { return Words{EXAMPLES "12_trainer", folder_.file(folder)}; };
  Job alone(command("alone"));
  ASSERT_EQ(alone.wait(), 0) << alone.err();
  const std::vector<std::string> lines = testing::lines(alone.out());
  ASSERT_GE(lines.size(), 2u);
  EXPECT_THAT(lines[lines.size() - 2], ::testing::ContainsRegex("^epoch [0-9]+  evaluation: accuracy 0\\.9"));
  EXPECT_EQ(lines.back().find("step 5000"), std::string::npos) << "it was ended early";
  EXPECT_EQ(weights_with_a_kill(command("killed")), lines.back());
  const std::string asked = stopped_folder([&](const std::string& folder) { return command(folder); });
  Job further(command(asked));
  ASSERT_EQ(further.wait(), 0) << further.err();
  EXPECT_EQ(testing::lines(further.out()).back(), lines.back());
  Job again(command(asked));
  ASSERT_EQ(again.wait(), 0) << again.err();
  EXPECT_EQ(again.out(), lines.back() + "\n");
}

// Ctrl-S: what the observer says of steps is dropped, its evaluations come when the terminal goes on.
TEST_F(Examples, TrainerGoesOnWhereItsTerminalStandsStill) {
  const testing::Terminal terminal;
  terminal.stop();
  Job job({"/bin/sh", "-c", "exec \"$@\" > " + terminal.name(), "sh", EXAMPLES "12_trainer", folder_.file("saved")});
  const auto has_gone_on = [&](const std::filesystem::directory_entry& entry) {
    const std::string name = entry.path().filename();
    return name.starts_with("step-") && name > "step-00000400";
  };
  testing::wait_until([&] {
    std::error_code not_there_yet;
    return std::ranges::any_of(std::filesystem::directory_iterator(folder_.file("saved"), not_there_yet), has_gone_on);
  });
  terminal.go_on();
  const std::string seen = terminal.read_until([&] { return job.living().empty(); });
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(seen, ::testing::HasSubstr("epoch 1  evaluation: accuracy 0."));
  EXPECT_THAT(seen, ::testing::HasSubstr("weights "));
}

TEST_F(Examples, AllReduce) {
  Job job(Words{LOCKSTEP_PROGRAM, "run", "-n", "4", EXAMPLES "03_all_reduce"});
  ASSERT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(testing::lines(job.out()),
              ::testing::ElementsAre(::testing::StartsWith("area 3.14"), "last rank 3", "rows 6", "even ranks 2"));
}

TEST_F(Examples, GradientAccumulation) {
  const Words command = {EXAMPLES "04_gradient_accumulation"};
  Job job(Words{LOCKSTEP_PROGRAM, "run", "-n", "2"} + command);
  ASSERT_EQ(job.wait(), 0) << job.err();
  const std::vector<std::string> lines = testing::lines(job.out());
  EXPECT_THAT(
      lines,
      ::testing::ElementsAre(
          ::testing::StartsWith("parts of 16  accuracy 0.9"), ::testing::StartsWith("parts of 256  accuracy 0.9"),
          ::testing::ContainsRegex("^largest difference ([0-9.]+e-(0[5-9]|[1-9][0-9])|0(\\.000[0-9]*)?)$")));
  EXPECT_EQ(weights_with_a_kill(command), lines.back()) << "of two trainings, the first of which was over";
}

TEST_F(Examples, MixedPrecision) {
  const Words command = {EXAMPLES "06_mixed_precision"};
  Job job(Words{LOCKSTEP_PROGRAM, "run", "-n", "2"} + command);
  ASSERT_EQ(job.wait(), 0) << job.err();
  const std::vector<std::string> lines = testing::lines(job.out());
  EXPECT_THAT(lines,
              ::testing::ElementsAre(
                  ::testing::ContainsRegex("^float32  accuracy 0\\.9[0-9]*  skipped 0  scale 1$"),
                  ::testing::ContainsRegex("^bfloat16  accuracy 0\\.9[0-9]*  skipped 0  scale 1$"),
                  ::testing::ContainsRegex("^float16  accuracy 0\\.9[0-9]*  skipped [1-9][0-9]*  scale [0-9.e+]+$"),
                  "rounded otherwise"));
  const std::vector<std::string> killed = lines_with_a_kill(command);
  EXPECT_EQ(killed.at(killed.size() - 2), lines.at(2)) << "accuracy, skipped steps and scale";
}

TEST_F(Examples, Horovod) {
  Job job(Words{LOCKSTEP_PROGRAM, "run", "-n", "2", EXAMPLES "09_horovod"});
  ASSERT_EQ(job.wait(), 0) << job.err();
  const std::vector<std::string> lines = testing::lines(job.out());
  ASSERT_EQ(lines.size(), 11u) << job.out();
  EXPECT_THAT(lines[9], ::testing::ContainsRegex("^epoch 10  loss 0\\.[01]"));
  EXPECT_THAT(lines[10], ::testing::ContainsRegex("^accuracy (1|0\\.9)"));
}

// Its weights are those of two processes, not of any number.
TEST_F(Examples, SyncBatchNorm) {
  const Words command = {EXAMPLES "07_sync_batch_norm"};
  Job undisturbed(Words{LOCKSTEP_PROGRAM, "run", "-n", "2"} + command);
  ASSERT_EQ(undisturbed.wait(), 0) << undisturbed.err();
  const std::vector<std::string> lines = testing::lines(undisturbed.out());
  ASSERT_EQ(lines.size(), 7u) << undisturbed.out();
  EXPECT_THAT(lines[4], ::testing::ContainsRegex("^epoch 5  loss 0\\.[0-9]"));
  EXPECT_THAT(lines[5], ::testing::ContainsRegex("^accuracy 0\\.9"));
  EXPECT_EQ(weights_with_a_kill(command), lines[6]);
}

TEST_F(Examples, Gan) {
  const Words command = {EXAMPLES "10_gan"};
  Job undisturbed(Words{LOCKSTEP_PROGRAM, "run", "-n", "2"} + command);
  ASSERT_EQ(undisturbed.wait(), 0) << undisturbed.err();
  const std::vector<std::string> lines = testing::lines(undisturbed.out());
  ASSERT_EQ(lines.size(), 11u) << undisturbed.out();
  EXPECT_THAT(lines[9], ::testing::ContainsRegex("^step 1000  radius (0\\.9|1\\.0)"));
  EXPECT_EQ(weights_with_a_kill(command), lines[10]);
  // With checkpoints: the launcher saves both when all workers are killed, and nobody does when all are.
  const Words saving = Words{LOCKSTEP_PROGRAM, "run", "-n", "2"} + command + Words{folder_.file("run")};
  Job crashed(saving);
  crashed.wait_for_lines(1);
  for (const pid_t pid : {testing::pid_of_rank(crashed, 0), testing::pid_of_rank(crashed, 1)}) kill(pid, SIGKILL);
  EXPECT_EQ(crashed.wait(), 137);
  for (const char* model : {"discriminator", "generator"})
    EXPECT_THAT(crashed.err(), ::testing::HasSubstr("is saved in '" + folder_.file("run/") + model + "/step-"));
  Job gone(saving);
  gone.wait_for_lines(2);
  for (const pid_t pid : gone.living()) kill(pid, SIGKILL);
  EXPECT_EQ(gone.wait(), 137);
  EXPECT_TRUE(gone.nothing_left());
  Job last(saving);
  ASSERT_EQ(last.wait(), 0) << last.err();
  EXPECT_THAT(last.out(), ::testing::StartsWith("from step "));
  EXPECT_EQ(testing::lines(last.out()).back(), lines[10]);
}

TEST_F(Examples, CommHook) {
  std::vector<std::string> lines;
  for (int run = 0; run < 2; ++run) {
    Job job(Words{LOCKSTEP_PROGRAM, "run", "-n", "2", EXAMPLES "05_comm_hook"});
    ASSERT_EQ(job.wait(), 0) << job.err();
    const std::vector<std::string> found = testing::lines(job.out());
    EXPECT_TRUE(run == 0 || found == lines) << "the same numbers in every run";
    lines = found;
  }
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_EQ(lines[5].substr(0, 30), "gradients 896400, compressed 6") << lines[5];
  EXPECT_THAT(lines[6], ::testing::ContainsRegex("^accuracy 0\\.9"));
}

TEST_F(Examples, DataParallel) {
  std::vector<std::string> lines;
  for (int run = 0; run < 2; ++run) {
    Job job(Words{EXAMPLES "08_data_parallel"});
    ASSERT_EQ(job.wait(), 0) << job.err();
    const std::vector<std::string> found = testing::lines(job.out());
    EXPECT_TRUE(run == 0 || found == lines) << "the same numbers in every run";
    lines = found;
  }
  ASSERT_EQ(lines.size(), 11u);
  EXPECT_THAT(lines[9], ::testing::ContainsRegex("^epoch 10  loss 0\\."));
  EXPECT_THAT(lines[10], ::testing::ContainsRegex("^accuracy 0\\.9"));
}

// Everything that belongs to the job is killed at random, the launcher first: nothing is left but the files.
TEST_F(Examples, CheckpointedLoop) {
  const auto command = [&](const std::string& ranks, const std::string& folder) {
    return Words{LOCKSTEP_PROGRAM, "run", "-n", ranks, EXAMPLES "checkpointed_loop", folder_.file(folder)};
  };
  Job alone(command("1", "undisturbed"));
  ASSERT_EQ(alone.wait(), 0) << alone.err();
  EXPECT_THAT(alone.out(), ::testing::ContainsRegex("epoch 10  loss 0\\.0"));
  bool went_on = false;
  for (int i = 0; i < 5; ++i) {
    Job job(command(std::to_string(1 + i % 3), "checkpoints"));
    job.wait_for_lines(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(13 * i));
    try {
      const pid_t worker = testing::pid_of_rank(job, 0);
      kill(job.pid(), SIGKILL);
      kill(worker, SIGKILL);
    } catch (const std::runtime_error&) {  // done before
    }
    job.wait();
    went_on = went_on || job.out().find("from step") != std::string::npos;
  }
  Job last(command("2", "checkpoints"));
  ASSERT_EQ(last.wait(), 0) << last.err();
  EXPECT_TRUE(went_on || last.out().find("from step") != std::string::npos);
  EXPECT_EQ(testing::lines(last.out()).back(), testing::lines(alone.out()).back());
  Job further(command("3", stopped_folder([&](const std::string& folder) {
                        return Words{EXAMPLES "checkpointed_loop", folder_.file(folder)};
                      })));
  ASSERT_EQ(further.wait(), 0) << further.err();
  EXPECT_THAT(further.out(), ::testing::StartsWith("from step "));
  EXPECT_EQ(testing::lines(further.out()).back(), testing::lines(alone.out()).back());
}

TEST_F(Examples, FinetuneFolder) {
  for (const char* part : {"photos/train", "photos/val"})
    testing::write_pictures(folder_, part, {.per_class = 12, .size = {40, 40}});
  const std::string photos = folder_.file("photos");
  const Words command = {EXAMPLES "finetune_folder", photos, folder_.file("out.safetensors")};
  expect_learns_and_outlives(command, "^epoch 3  top-1 [01]");
  const std::string trained = testing::read_file(folder_.file("out.safetensors"));
  Job further(command + Words{folder_.file("out.safetensors")});
  ASSERT_EQ(further.wait(), 0) << further.err();
  EXPECT_NE(testing::read_file(folder_.file("out.safetensors")), trained) << "it went on from there";
  Job wrong(Words{EXAMPLES "finetune_folder", photos});
  EXPECT_EQ(wrong.wait(), 2);
  EXPECT_THAT(wrong.err(), ::testing::EndsWith("lockstep: error: usage: finetune_folder PHOTOS OUT.safetensors "
                                               "[START.safetensors]\n"));
}

}  // namespace
}  // namespace lockstep
