#include "lockstep/metrics/run_directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/stop_on.h"
#include "lockstep/base/unique_fd.h"
#include "sample_events.h"

namespace lockstep::metrics {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename());
  return names;
}

template <class Body>
int code_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return exit_code(error);
  }
  return kExitDone;
}

const RunClaim kNew{.run_id = "job 1"};
const RunClaim kOverwrite{.run_id = "job 1", .overwrite = true};

TEST(RunDirectory, IsMadeWithItsParentsAndHoldsConfigurationAndOwner) {
  TemporaryFolder folder;
  const RunDirectory run = RunDirectory::create(folder.file("a/b/c"), "{}\n", kNew);
  EXPECT_EQ(run.path(), folder.file("a/b/c"));
  EXPECT_EQ(read_all(folder.file("a/b/c/config.json")), "{}\n");
  EXPECT_EQ(read_all(folder.file("a/b/c/run.id")), "job 1\n0\n");
  EXPECT_THAT(names_in(run.path()), UnorderedElementsAre("config.json", "run.id", "run.lock"));
}

TEST(RunDirectory, AnUnusedFolderIsTakenAsItIs) {
  TemporaryFolder folder;
  put(folder.file("notes.txt"), "mine");
  RunDirectory::create(folder.path(), "{}", kNew);
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("config.json", "notes.txt", "run.id", "run.lock"));
}

TEST(RunDirectory, AUsedOneIsRefusedAndStaysAsItWas) {
  for (const char* file : {"config.json", "metrics.jsonl"}) {
    TemporaryFolder folder;
    put(folder.file(file), "old");
    EXPECT_THAT([&] { RunDirectory::create(folder.path(), "{}", kNew); },
                ThrowsMessage<UsageError>(AllOf(HasSubstr(folder.path()), HasSubstr("--overwrite"))));
    EXPECT_EQ(read_all(folder.file(file)), "old");
    EXPECT_EQ(names_in(folder.path()).size(), 1u);
  }
}

TEST(RunDirectory, AJobThatWasStartedAgainGoesOnInItsOwn) {
  TemporaryFolder folder;
  RunDirectory::create(folder.path(), "mine", kNew);
  put(folder.file("metrics.jsonl"), "line\n");
  for (const bool overwrite : {false, true})  // what was to be replaced is gone since the first start
    RunDirectory::create(folder.path(), "mine", {.run_id = "job 1", .attempt = 1 + overwrite, .overwrite = overwrite});
  EXPECT_EQ(read_all(folder.file("metrics.jsonl")), "line\n");
  EXPECT_EQ(read_all(folder.file("run.id")), "job 1\n2\n");
  EXPECT_THAT([&] { RunDirectory::create(folder.path(), "other", {.run_id = "job 1", .attempt = 3}); },
              ThrowsMessage<UsageError>(HasSubstr("another configuration")));
  EXPECT_EQ(read_all(folder.file("config.json")), "mine");
  const auto goes_on = [](std::string_view there, std::string_view now) { return there == "mine" && now == "other"; };
  RunDirectory::create(folder.path(), "other", {.run_id = "job 1", .attempt = 3, .goes_on = goes_on});
  EXPECT_EQ(read_all(folder.file("config.json")), "other");
  EXPECT_EQ(read_all(folder.file("metrics.jsonl")), "line\n");
}

// To be an attempt later than the first proves nothing of the folder.
TEST(RunDirectory, ARestartedJobGetsNobodyElsesResults) {
  TemporaryFolder folder;
  put(folder.file("config.json"), "mine");
  put(folder.file("metrics.jsonl"), "line\n");
  const RunClaim restarted{.run_id = "job 1", .attempt = 1};
  const auto refused = ThrowsMessage<UsageError>(HasSubstr("already holds a run"));
  EXPECT_THAT([&] { RunDirectory::create(folder.path(), "mine", restarted); }, refused) << "of nobody known";
  put(folder.file("run.id"), "job 0\n0\n");
  EXPECT_THAT([&] { RunDirectory::create(folder.path(), "mine", restarted); }, refused);
  put(folder.file("run.id"), "job 1\n1\n");
  EXPECT_THAT([&] { RunDirectory::create(folder.path(), "mine", restarted); }, refused) << "an id that came again";
  EXPECT_EQ(read_all(folder.file("metrics.jsonl")), "line\n");
  put(folder.file("run.id"), "job 0\n0\n");
  RunDirectory::create(folder.path(), "mine", {.run_id = "job 1", .attempt = 1, .overwrite = true});
  EXPECT_FALSE(fs::exists(folder.file("metrics.jsonl")));
}

TEST(RunDirectory, OneThatALivingRunHasIsRefused) {
  TemporaryFolder folder;
  const std::string path = folder.file("run");
  const RunClaim other{.run_id = "job 2", .overwrite = true};
  {
    const RunDirectory run = RunDirectory::create(path, "{}", kNew);
    EXPECT_THAT([&] { RunDirectory::create(path, "{}", other); },
                ThrowsMessage<UsageError>(AllOf(HasSubstr("'" + path + "'"), HasSubstr("a running job writes there"))));
    EXPECT_EQ(read_all(path + "/run.id"), "job 1\n0\n");
  }
  RunDirectory::create(path, "{}", other);
}

// What the folder holds is looked at in between.
TEST(RunDirectory, OneThatWasLockedBeforeIsContinuedByWhoHasTheLock) {
  TemporaryFolder folder;
  EXPECT_EQ(lock_used(folder.file("none")), nullptr);
  EXPECT_EQ(lock_used(folder.path()), nullptr);
  EXPECT_TRUE(names_in(folder.path()).empty()) << "what no run has used stays as it is";
  RunDirectory::create(folder.path(), "{}", kNew);
  RunClaim next{.run_id = "job 2", .held = lock_used(folder.path())};
  ASSERT_NE(next.held, nullptr);
  EXPECT_THAT([&] { lock_used(folder.path()); }, ThrowsMessage<UsageError>(HasSubstr("a running job writes there")));
  {
    const RunDirectory run = RunDirectory::create(folder.path(), "other", next);
    next.held = nullptr;
    EXPECT_THAT([&] { lock_used(folder.path()); }, ThrowsMessage<UsageError>(HasSubstr("a running job writes there")));
  }
  EXPECT_EQ(read_all(folder.file("config.json")), "other");
  EXPECT_NE(lock_used(folder.path()), nullptr);
  for (const char* name : {"metrics.jsonl", "checkpoints"}) {
    TemporaryFolder used;
    put(used.file(name), "");
    EXPECT_NE(lock_used(used.path()), nullptr) << name;
  }
}

TEST(RunDirectory, OverwriteRemovesOnlyWhatARunMade) {
  TemporaryFolder folder;
  for (const char* file : {"config.json", "metrics.jsonl", "metrics.csv", "events.out.tfevents.17.lockstep", "run.id"})
    put(folder.file(file), "old");
  for (const char* file : {"notes.txt", "events.out.tfevents.17.otherhost", "model.safetensors"})
    put(folder.file(file), "mine");
  fs::create_directory(folder.file("log"));
  put(folder.file("log/rank_0"), "mine");
  RunDirectory::create(folder.path(), "new", kOverwrite);
  EXPECT_EQ(read_all(folder.file("config.json")), "new");
  EXPECT_THAT(names_in(folder.path()),
              UnorderedElementsAre("config.json", "run.id", "run.lock", "notes.txt", "model.safetensors", "log",
                                   "events.out.tfevents.17.otherhost"));
  EXPECT_EQ(read_all(folder.file("log/rank_0")), "mine");
}

TEST(RunDirectory, PathsThatCannotBeWrittenAreNamed) {
  TemporaryFolder folder;
  put(folder.file("file"), "");
  for (const std::string& path : {folder.file("file"), folder.file("file/below"), std::string("/proc/lockstep_run")})
    EXPECT_THAT([&] { RunDirectory::create(path, "{}", kNew); },
                ThrowsMessage<UsageError>(HasSubstr("'" + path + "'")));
  EXPECT_THROW(RunDirectory::create("", "{}", kNew), UsageError);
  EXPECT_THAT([] { RunLock("/proc/self"); }, ThrowsMessage<UsageError>(HasSubstr("'/proc/self': cannot be written")));
}

TEST(RunLock, AForkedChildThatOutlivesItKeepsNobodyOut) {
  TemporaryFolder folder;
  int begun[2], end[2];
  ASSERT_EQ(::pipe(begun), 0);
  ASSERT_EQ(::pipe(end), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    ::close(end[1]);
    char byte = 0;
    const RunLock lock(folder.path());
    if (::fork() == 0 && ::write(begun[1], "x", 1) == 1)
      while (::read(end[0], &byte, 1) > 0) {
      }
    ::_exit(0);
  }
  ::close(begun[1]);
  char byte = 0;
  EXPECT_EQ(::read(begun[0], &byte, 1), 1);
  EXPECT_EQ(::waitpid(holder, nullptr, 0), holder);
  EXPECT_EQ(code_of([&] { RunLock(folder.path()); }), kExitDone) << "the child lives until the pipe ends";
  for (const int fd : {begun[0], end[0], end[1]}) ::close(fd);
}

// As a server keeps the lock of a machine that is gone.
TEST(RunLock, WhoComesAgainWaitsForAnotherMachines) {
  TemporaryFolder folder;
  put(folder.file("run.lock"), "another boot\n");
  base::UniqueFd other(::open(folder.file("run.lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
  ::testing::internal::CaptureStderr();
  std::thread lease([&] {  // ends when it is told of
    const auto most = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    struct stat told {};
    while (::fstat(STDERR_FILENO, &told) == 0 && told.st_size == 0 && std::chrono::steady_clock::now() < most)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    other = base::UniqueFd();
  });
  const int code = code_of([&] { RunLock(folder.path(), Coming::again); });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("'" + folder.path() + "': locked by a job on another machine"), HasSubstr("120 s")));
  lease.join();
  EXPECT_EQ(code, kExitDone);
  EXPECT_NE(read_all(folder.file("run.lock")), "another boot\n") << "it is this one's now";
}

// Which may be this one: the file does not say.
TEST(RunLock, ASignalEndsTheWaitForAnotherMachine) {
  TemporaryFolder folder;
  put(folder.file("run.lock"), "");
  const base::UniqueFd other(::open(folder.file("run.lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
  const base::StopOn stop({SIGUSR1});
  ::testing::internal::CaptureStderr();
  std::thread scheduler([] {  // sends it when it is told of
    const auto most = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    struct stat told {};
    while (::fstat(STDERR_FILENO, &told) == 0 && told.st_size == 0 && std::chrono::steady_clock::now() < most)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ::kill(::getpid(), SIGUSR1);
  });
  EXPECT_THAT([&] { RunLock(folder.path(), Coming::again); },
              ThrowsMessage<Error>(HasSubstr("asked to end while another job had it locked")));
  scheduler.join();
  ::testing::internal::GetCapturedStderr();
}

TEST(RunLock, AnotherMachineIsWaitedForAsLongAsThereIsPatience) {
  TemporaryFolder folder;
  put(folder.file("run.lock"), "another boot\n");
  const base::UniqueFd other(::open(folder.file("run.lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
  const std::chrono::milliseconds none(0);
  const base::StopOn unasked({SIGUSR1});  // a signal that came before is forgotten
  ::testing::internal::CaptureStderr();
  EXPECT_THAT([&] { RunLock(folder.path(), Coming::again, none); },
              ThrowsMessage<Error>(HasSubstr("a job on another machine writes there")));
  const RunClaim later{.run_id = "job 1", .attempt = 1, .patience = none};
  EXPECT_EQ(code_of([&] { RunDirectory::create(folder.path(), "{}", later); }), kExitFailure);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "who waits says so";
}

// The disk of its machine was full, and the machine is gone: the launcher starts again what fails, and no wrong use.
TEST(RunLock, AHolderThatHasNotSignedMayBeOnAnotherMachine) {
  TemporaryFolder folder;
  put(folder.file("run.lock"), "");
  const base::UniqueFd other(::open(folder.file("run.lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
  const base::StopOn unasked({SIGUSR1});  // a signal that came before is forgotten
  ::testing::internal::CaptureStderr();
  try {
    const RunLock lock(folder.path(), Coming::again, std::chrono::milliseconds(2'100));
    ADD_FAILURE() << "it has the lock of another one";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a job writes there that does not say on which machine it runs"));
    EXPECT_EQ(exit_code(error), kExitFailure);
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("locked by a job that does not say on which machine it runs; waiting for 2 s at most"));
}

// A launcher starts a job again that has failed, and none that was used wrongly.
TEST(RunDirectory, OneThatCannotBeWrittenAnyMoreIsAFailureAndNoWrongUse) {
  EXPECT_EQ(code_of([] { RunLock("/proc/self"); }), kExitUsage);
  EXPECT_EQ(code_of([] { RunLock("/proc/self", Coming::again); }), kExitFailure);
  TemporaryFolder folder;
  fs::create_directories(folder.file("run.id/x"));  // a file cannot take its place
  const RunClaim again{.run_id = "job 1", .attempt = 1};
  EXPECT_EQ(code_of([&] { RunDirectory::create(folder.path(), "{}", kNew); }), kExitUsage);
  EXPECT_EQ(code_of([&] { RunDirectory::create(folder.path(), "{}", again); }), kExitFailure);
  const RunClaim resumed{.run_id = "job 1", .held = std::make_shared<RunLock>(folder.path())};
  EXPECT_EQ(code_of([&] { RunDirectory::create(folder.path(), "{}", resumed); }), kExitFailure);
}

TEST(RunDirectory, NothingIsRemovedWhenTheNewFilesCannotBeWritten) {
  TemporaryFolder folder;
  put(folder.file("metrics.jsonl"), "old");
  fs::create_directories(folder.file("config.json/x"));  // a file cannot take its place
  EXPECT_THAT([&] { RunDirectory::create(folder.path(), "{}", kOverwrite); },
              ThrowsMessage<UsageError>(HasSubstr("cannot write")));
  EXPECT_EQ(read_all(folder.file("metrics.jsonl")), "old");
}

}  // namespace
}  // namespace lockstep::metrics
