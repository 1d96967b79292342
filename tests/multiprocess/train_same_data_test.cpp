// All ranks, and a job that was started again, read the same pictures; else the order of an epoch means others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "tests/support/image_files.h"
#include "tests/support/train_run.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Job;
using testing::ScratchFolder;
using testing::wait_until;
using testing::Words;

class TrainSameData : public ::testing::Test {
 protected:
  TrainSameData() {
    for (const ScratchFolder* folder : {&first_, &second_}) {
      testing::write_pictures(*folder, "train", {.per_class = 4});
      testing::write_pictures(*folder, "val", {.per_class = 2});
    }
  }

  static Words train(const ScratchFolder& folder, const Words& more) {
    Words command = {LOCKSTEP_PROGRAM, "train", "--dataset", "imagefolder", "--data-path",  folder.path(),
                     "--transforms",   "none",  "--model",   "mlp",         "--batch-size", "2"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

  // Two ranks, each with a folder of its own.
  void expect_refused(int port, const std::string& reason) const {
    Job zero(train(first_, {"--max-steps", "2"}), testing::rank_variables(0, 2, port));
    Job one(train(second_, {"--max-steps", "2"}), testing::rank_variables(1, 2, port));
    EXPECT_EQ(zero.wait(), 2);
    EXPECT_EQ(one.wait(), 2);
    const std::string said = zero.err() + one.err();
    EXPECT_EQ(testing::lines(said).size(), 1u) << said;
    EXPECT_THAT(said, HasSubstr("rank 1 reads another set to " + reason));
  }

  ScratchFolder first_, second_;
};

TEST_F(TrainSameData, ARankThatReadsOtherFilesIsNamedWithWhatDiffers) {
  const std::string picture = testing::read_file(first_.file("train/bee/0.jpg"));
  second_.write("train/ant/another.jpg", picture);
  expect_refused(29541, "train on than rank 0: 9 pictures, not 8");
  fs::remove(second_.file("train/ant/another.jpg"));
  fs::rename(second_.file("train/ant/0.jpg"), second_.file("train/ant/9.jpg"));
  expect_refused(29542, "train on than rank 0: as many pictures and the same classes, but other labels or file names");
  fs::rename(second_.file("train/ant/9.jpg"), second_.file("train/ant/0.jpg"));
  second_.write("val/bee/another.jpg", picture);
  expect_refused(29543, "evaluate on than rank 0: 5 pictures, not 4");
  fs::remove(second_.file("val/bee/another.jpg"));
  for (const char* part : {"train", "val"})
    fs::rename(second_.file(std::string(part) + "/bee"), second_.file(std::string(part) + "/cat"));
  expect_refused(29544, "train on than rank 0: other classes");
}

TEST_F(TrainSameData, ARestartThatReadsAnotherSetIsRefused) {
  Job job(
      train(first_, {"-n", "2", "--max-restarts", "2", "--max-steps", "100000000", "--print-freq", "1", "--no-eval"}));
  wait_until([&] { return testing::lines(job.out()).size() >= 5 || !job.err().empty(); });
  first_.write("train/ant/another.jpg", testing::read_file(first_.file("train/bee/0.jpg")));
  for (const pid_t pid : job.living())
    if (pid != job.pid()) kill(pid, SIGKILL);
  EXPECT_EQ(job.wait(), 2) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("restart 1 of 2"));
  EXPECT_THAT(job.err(), HasSubstr("the pictures are not those that this job began with (9 to train on now)"));
  EXPECT_EQ(job.err().find("restart 2 of 2"), std::string::npos) << "wrong input is no reason to try again";
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(TrainSameData, ARestartThatReadsTheSameSetGoesOn) {
  Job job(train(first_, {"-n", "2", "--max-restarts", "1", "--max-steps", "2000", "--print-freq", "1", "--no-eval"}));
  wait_until([&] { return testing::lines(job.out()).size() >= 5 || !job.err().empty(); });
  for (const pid_t pid : job.living())
    if (pid != job.pid()) kill(pid, SIGKILL);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("restart 1 of 1"));
}

}  // namespace
}  // namespace lockstep
