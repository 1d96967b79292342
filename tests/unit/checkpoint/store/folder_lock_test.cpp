#include "lockstep/checkpoint/store/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/other_saver.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::OtherSaver;
using lockstep::testing::ScratchFolder;
using lockstep::testing::usage_error;
using ::testing::HasSubstr;

TEST(FolderLock, AnotherLivingProgramKeepsTheFolder) {
  const ScratchFolder folder;
  const std::string checkpoints = folder.file("a/checkpoints");
  OtherSaver other(checkpoints);
  EXPECT_THAT(usage_error([&] { hold_folder(checkpoints); }),
              HasSubstr("checkpoints in '" + checkpoints + "': another program that is running saves there"));
  EXPECT_NO_THROW(hold_folder(folder.file("b")));
  other.kill();
  EXPECT_NO_THROW(hold_folder(checkpoints));
}

TEST(FolderLock, OfThisProcessIsForAllOfIt) {
  const ScratchFolder folder;
  hold_folder(folder.file("a"));
  EXPECT_NO_THROW(hold_folder(folder.file("a")));
  fs::create_directory_symlink("a", folder.file("b"));
  EXPECT_NO_THROW(hold_folder(folder.file("b"))) << "by another name";
}

TEST(FolderLock, AFolderThatWasMadeAnewIsHeldAnew) {
  const ScratchFolder folder;
  hold_folder(folder.file("a"));
  fs::remove_all(folder.file("a"));
  hold_folder(folder.file("a"));
  EXPECT_TRUE(fs::exists(folder.file("a/.lock")));
}

TEST(FolderLock, WhatTheSystemRefusesIsLeftToWhoWrites) {
  const ScratchFolder folder;
  folder.write("file", "");
  EXPECT_NO_THROW(hold_folder(folder.file("file")));
  EXPECT_EQ(folder.entries(), 1u);
}

}  // namespace
}  // namespace lockstep::checkpoint
