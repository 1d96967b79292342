#include "lockstep/checkpoint/store/folder_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

#include "tests/support/other_saver.h"
#include "tests/support/pipe.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"
#include "tests/support/wait_until.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::OtherSaver;
using lockstep::testing::Pipe;
using lockstep::testing::ScratchFolder;
using lockstep::testing::usage_error;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// How often this process has the file open.
int opens_here(const std::string& path) {
  int opens = 0;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd"))
    if (fs::read_symlink(entry.path(), ignored) == path) ++opens;
  return opens;
}
bool is_open_here(const std::string& path) { return opens_here(path) > 0; }

bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  return text.find(") S ") != std::string::npos;
}

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

// As a cluster's file system keeps the lock of a machine that is gone.
class FolderLockOfAnotherMachine : public ::testing::Test {
 protected:
  FolderLockOfAnotherMachine() { EXPECT_EQ(::flock(other_.get(), LOCK_EX | LOCK_NB), 0); }

  const ScratchFolder folder_;
  const std::string lock_ = folder_.write("a/.lock", "another boot\n");
  base::UniqueFd other_{::open(lock_.c_str(), O_RDONLY | O_CLOEXEC)};
};

TEST_F(FolderLockOfAnotherMachine, IsWaitedFor) {
  ::testing::internal::CaptureStderr();
  std::thread lease([&] {  // ends when it is told of
    const auto most = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    struct stat told {};
    while (::fstat(STDERR_FILENO, &told) == 0 && told.st_size == 0 && std::chrono::steady_clock::now() < most)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    other_ = base::UniqueFd();
  });
  EXPECT_NO_THROW(hold_folder(folder_.file("a")));
  lease.join();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("checkpoints in '" + folder_.file("a") + "': locked by a job on another machine"),
                    HasSubstr("120 s")));
  EXPECT_NE(lockstep::testing::read_file(lock_), "another boot\n") << "it is this one's now";
  EXPECT_NE(lockstep::testing::read_file(lock_), "");
}

TEST_F(FolderLockOfAnotherMachine, IsNoWrongUseWhereItStays) {
  EXPECT_THAT([&] { hold_folder(folder_.file("a"), std::chrono::milliseconds(0)); },
              ThrowsMessage<Error>(HasSubstr("a program on another machine saves there")));
  EXPECT_THAT(usage_error([&] { hold_folder(folder_.file("a"), {}); }), HasSubstr("another program that is running"));
}

TEST_F(FolderLockOfAnotherMachine, IsNotWaitedForByWhoSavesElsewhere) {
  hold_folder(folder_.file("b"));
  std::atomic<bool> is_waiting{true};
  std::thread waiting([&] {
    EXPECT_NO_THROW(hold_folder(folder_.file("a"), std::chrono::seconds(20)));
    is_waiting = false;
  });
  const std::string lock = fs::canonical(lock_).string();
  lockstep::testing::wait_until([&] { return opens_here(lock) == 2; });
  hold_folder(folder_.file("b"));
  EXPECT_TRUE(is_waiting);
  other_ = base::UniqueFd();
  waiting.join();
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

// The thread that waits is not in the child, nor is the turn that it has.
TEST(FolderLock, AChildThatIsForkedWhileAnotherThreadWaitsMaySave) {
  const ScratchFolder folder;
  const std::string waited_for = fs::canonical(folder.path()).string() + "/a";
  OtherSaver other(waited_for);
  std::thread waiting([&] { usage_error([&] { hold_folder(waited_for); }); });  // for two seconds
  lockstep::testing::wait_until([&] { return is_open_here(waited_for + "/.lock"); });
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    const bool inherits = is_open_here(waited_for + "/.lock");
    hold_folder(folder.file("b"));
    ::_exit(inherits || !is_open_here(fs::canonical(folder.path()).string() + "/b/.lock") ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "SIGALRM: it hangs; 1: it has the file of the other thread, or not its own";
  waiting.join();
}

// Which another thread opens; here it is a pipe with a name, that is open for reading when somebody writes.
TEST(FolderLock, NoForkWaitsForAFileThatADiskDoesNotOpen) {
  const ScratchFolder folder;
  const std::string lock = fs::canonical(folder.path()).string() + "/.lock";
  ASSERT_EQ(::mkfifo(lock.c_str(), 0644), 0);
  std::atomic<pid_t> saver{0};
  std::thread saving([&] {
    saver = ::gettid();
    hold_folder(folder.path());
  });
  lockstep::testing::wait_until([&] { return saver != 0 && is_asleep(saver); });
  std::atomic<bool> has_forked{false}, has_waited{false};
  base::UniqueFd answer;
  std::thread disk([&] {
    const auto most = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!has_forked && std::chrono::steady_clock::now() < most)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    has_waited = !has_forked;
    answer = base::UniqueFd(::open(lock.c_str(), O_WRONLY | O_CLOEXEC));
  });
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  has_forked = true;
  disk.join();
  EXPECT_FALSE(has_waited) << "the fork ended when the file was open";
  saving.join();
  answer = base::UniqueFd();
  EXPECT_TRUE(is_open_here(lock)) << "it is held all the same";
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
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
