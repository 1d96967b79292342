// Pictures that cannot be read: one line naming file and reason, exit code 2, no rank left, from two processes of
// which one alone meets the bad file, whether before the first step or in mid-epoch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/image_files.h"
#include "tests/support/train_run.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::Job;
using Flags = std::vector<std::string>;

class TrainInput : public ::testing::Test {
 protected:
  TrainInput() {
    testing::write_pictures(folder_, "train");
    testing::write_pictures(folder_, "val", {.per_class = 2});
  }

  Flags train(const Flags& more = {}) const {
    Flags flags = {LOCKSTEP_PROGRAM, "train",        "-n",           "2", "--dataset", "imagefolder",
                   "--data-path",    folder_.path(), "--print-freq", "1"};
    flags.insert(flags.end(), more.begin(), more.end());
    const std::vector<Flags> usual = {{"--transforms", "none"}, {"--model", "mlp"}, {"--batch-size", "4"}};
    for (const Flags& flag : usual)
      if (std::ranges::find(more, flag[0]) == more.end()) flags.insert(flags.end(), flag.begin(), flag.end());
    return flags;
  }

  std::string replace(const std::string& name, const Bytes& content) const {
    return folder_.write(name, {content.begin(), content.end()});
  }

  void expect_refused(Job& job, const std::vector<std::string>& words) const {
    EXPECT_EQ(job.wait(), 2);
    EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
    EXPECT_EQ(job.err().rfind("lockstep: error: ", 0), 0u) << job.err();
    for (const std::string& word : words) EXPECT_THAT(job.err(), HasSubstr(word));
    EXPECT_TRUE(job.nothing_left());
  }

  void expect_refused(const std::vector<std::string>& words) const {
    Job job(train());
    expect_refused(job, words);
  }

  const Bytes good_ = testing::jpeg_file(testing::picture(12, 12));
  testing::ScratchFolder folder_;
};

TEST_F(TrainInput, GoodPicturesTrain) {
  Job job(train({"--workers", "3"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.out(), HasSubstr("of 4\n")) << "evaluated on the four pictures of val";
}

TEST_F(TrainInput, FilesThatAreNoPicture) {
  const std::string name = "train/bee/7.jpg";
  const auto refused = [&](const Bytes& content, const std::string& reason) {
    SCOPED_TRACE(reason);
    const std::string file = replace(name, content);
    expect_refused({"sample 37: ", "'" + file + "'", reason});
  };
  refused({}, "empty");
  refused({good_.begin(), good_.begin() + std::ptrdiff_t(good_.size() / 2)}, "truncated");
  refused(Bytes(200, 'x'), "neither JPEG nor PNG");
  refused(testing::png_file({.width = 60000, .height = 60000}, {Bytes(10)}), "60000x60000 pixels");
}

TEST_F(TrainInput, PicturesOfAnotherSize) {
  const std::string file = replace("train/bee/7.jpg", testing::jpeg_file(testing::picture(12, 13)));
  expect_refused({"12x13", "12x12", "'" + file + "'", "a transform to one size is missing"});
}

TEST_F(TrainInput, PicturesThatATransformCannotTake) {
  const std::string file = replace("train/bee/7.jpg", testing::jpeg_file(testing::picture(6, 6)));
  Job job(train({"--transforms", "cifar"}));
  expect_refused(job, {"('" + folder_.path(), "RandomCrop: 32x32 out of a picture of "});
}

TEST_F(TrainInput, MixingNeedsTwoSamples) {
  Job job(train({"--mixup-alpha", "1", "--logical-shards", "8"}));
  expect_refused(job, {"mix the samples of a shard, and a shard has only one"});
}

// BatchNorm refuses a last step of one sample per shard, by an exception with a call stack.
TEST_F(TrainInput, WhatTorchThrowsComesWithoutItsCallStack) {
  for (int i = 1; i < 20; ++i) fs::remove(folder_.file("train/ant/" + std::to_string(i) + ".jpg"));
  for (int i = 8; i < 20; ++i) fs::remove(folder_.file("train/bee/" + std::to_string(i) + ".jpg"));
  Job job(train({"--model", "resnet18", "--batch-size", "1", "--no-eval", "--channels-last"}));
  EXPECT_EQ(job.wait(), 1);
  EXPECT_EQ(testing::lines(job.err()).size(), 3u) << "not the launcher's report: " << job.err();
  EXPECT_THAT(job.err(), HasSubstr("forward: Expected more than 1 value per channel"));
}

TEST_F(TrainInput, NamesThatWouldBreakTheLine) {
  replace("train/bee/7\n\x1b[31m.jpg", Bytes(200, 'x'));
  expect_refused({"train/bee/7\\n\\x1b[31m.jpg'", "neither JPEG nor PNG"});
}

TEST_F(TrainInput, FilesThatCannotBeOpened) {
  fs::remove(folder_.file("train/bee/7.jpg"));
  fs::create_symlink("nowhere", folder_.file("train/bee/7.jpg"));
  expect_refused({"sample 37: ", "bee/7.jpg'", "No such file or directory"});
}

TEST_F(TrainInput, FilesThatMayNotBeRead) {
  fs::permissions(folder_.file("train/bee/7.jpg"), fs::perms::none);
  Flags command = train();
  if (::geteuid() == 0) {  // who may read everything, but for this
    const Flags without = {"/usr/bin/setpriv", "--bounding-set", "-dac_override,-dac_read_search"};
    if (!fs::exists(without[0])) GTEST_SKIP() << "running as root, and no " << without[0];
    command.insert(command.begin(), without.begin(), without.end());
  }
  Job job(command);
  expect_refused(job, {"sample 37: ", "bee/7.jpg'", "Permission denied"});
}

TEST_F(TrainInput, FoldersThatAreNoSet) {
  fs::remove_all(folder_.file("val/bee"));
  fs::create_directory(folder_.file("val/bee"));
  expect_refused({folder_.file("val") + "'", "no picture", "class bee"});
  fs::remove_all(folder_.file("val"));
  fs::create_directory(folder_.file("val"));
  expect_refused({folder_.file("val") + "'", "no class folder"});
  fs::remove_all(folder_.file("train"));
  expect_refused({folder_.file("train") + "'", "No such file or directory"});
}

TEST_F(TrainInput, AFileThatGoesInMidEpoch) {
  Job job(train({"--epochs", "1000000", "--no-eval", "--workers", "2"}));
  job.wait_for_lines(3);
  fs::remove(folder_.file("train/bee/7.jpg"));
  expect_refused(job, {"sample 37: ", "bee/7.jpg'", "No such file or directory"});
}

TEST_F(TrainInput, ABadFileToEvaluateOn) {
  replace("val/ant/0.jpg", Bytes(200, 'x'));
  // The set is looked at before the first step; this file later, when it is its turn.
  replace("val/ant/1.jpg", good_);
  expect_refused({"sample 0: ", "val/ant/0.jpg'", "neither JPEG nor PNG"});
}

}  // namespace
}  // namespace lockstep
