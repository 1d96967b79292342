#include "lockstep/checkpoint/store/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/other_saver.h"
#include "tests/support/pipe.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::OtherSaver;
using lockstep::testing::Pipe;
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

TEST(FolderLock, AForkedChildThatOutlivesItKeepsNobodyOut) {
  const ScratchFolder folder;
  const std::string checkpoints = folder.file("a");
  Pipe begun, end;
  const pid_t holder = ::fork();
  if (holder == 0) {
    hold_folder(checkpoints);
    end.writer = base::UniqueFd();
    char byte = 0;
    if (::fork() == 0 && ::write(begun.writer.get(), "x", 1) == 1)
      while (::read(end.reader.get(), &byte, 1) > 0) {
      }
    ::_exit(0);
  }
  begun.writer = base::UniqueFd();
  char byte = 0;
  EXPECT_EQ(::read(begun.reader.get(), &byte, 1), 1);
  EXPECT_EQ(::waitpid(holder, nullptr, 0), holder);
  EXPECT_NO_THROW(hold_folder(checkpoints)) << "the child lives until the pipe ends";
}

TEST(FolderLock, AForkedChildMaySaveWhereItsProgramSaves) {
  const ScratchFolder folder;
  hold_folder(folder.file("a"));
  const pid_t child = ::fork();
  if (child == 0) {
    bool refused = false;
    try {
      hold_folder(folder.file("a"));
    } catch (const Error&) {
      refused = true;
    }
    ::_exit(refused ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
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
