// The log router where consoles stand still, disks are full and processes are killed.

#include <gmock/gmock.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "lockstep/launch/workers/process_state.h"
#include "tests/support/usage_error.h"
#include "tests/support/wait_until.h"
#include "tests/support/zombie_keeper.h"
#include "tests/unit/launch/output/log_router_fixture.h"

namespace lockstep::launch {
namespace {

using lockstep::testing::usage_error;
using lockstep::testing::wait_until;
using ::testing::HasSubstr;

// ---- consoles that do not take it

TEST_F(LogRouterTest, AConsoleThatNobodyReadsStopsNoWorker) {
  Pipe stuck;
  auto router = start({stream("0"), stream("1", 2)}, stuck.writer.get(), stuck.writer.get());
  const std::string text_in = numbered_lines(4 << 20);
  write_all(router->writer(0), text_in);
  write_all(router->writer(1), text_in);
  EXPECT_FALSE(router->finish(kShort));
  EXPECT_EQ(text("0") == text_in, true);
  EXPECT_EQ(text("1") == text_in, true);
  // The other users of the pipe still have it blocking.
  EXPECT_EQ(fcntl(stuck.writer.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(LogRouterTest, ATerminalThatStandsStillStopsNoWorker) {
  const UniqueFd terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_EQ(unlockpt(terminal.get()), 0);
  const UniqueFd screen(open(ptsname(terminal.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(screen);
  auto router = start({stream("0", 1, ">")}, screen.get(), screen.get());
  write_all(router->writer(0), "hello\n");
  char seen[8] = {};
  ASSERT_EQ(read(terminal.get(), seen, sizeof seen), 8);
  EXPECT_EQ(std::string(seen, 8), ">hello\r\n");
  const std::string text_in = numbered_lines(1 << 20);
  write_all(router->writer(0), text_in);
  EXPECT_FALSE(router->finish(kShort));
  EXPECT_EQ(text("0") == "hello\n" + text_in, true);
}

TEST_F(LogRouterTest, AConsoleThatIsGoneStopsOnlyTheCopy) {
  for (const bool from_the_start : {true, false}) {
    Pipe gone;
    if (from_the_start) gone.reader = UniqueFd();
    auto router = start({stream("0")}, gone.writer.get(), console("err").get());
    write_all(router->writer(0), "first\n");
    if (!from_the_start)
      wait_until([&] {
        pollfd shown{.fd = gone.reader.get(), .events = POLLIN, .revents = 0};
        return poll(&shown, 1, 0) == 1;
      });
    gone.reader = UniqueFd();
    write_all(router->writer(0), numbered_lines(2 << 20));
    EXPECT_FALSE(router->finish(kLong));
    EXPECT_EQ(text("0") == "first\n" + numbered_lines(2 << 20), true);
  }
}

// A pipe of another user cannot be opened again.
TEST_F(LogRouterTest, AConsoleThatCannotBeOpenedAgainIsNotWaitedFor) {
  ASSERT_EQ(chmod(scratch_.path().c_str(), 0777), 0);
  Pipe console;
  fchmod(console.writer.get(), 0);
  const std::string text_in = numbered_lines(1 << 20);
  const auto as_nobody = [&](const std::string& file, bool expected, milliseconds deadline) {
    return fork_child([&, file, expected, deadline] {
      if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(2);
      if (open(("/proc/self/fd/" + std::to_string(console.writer.get())).c_str(), O_WRONLY | O_NONBLOCK) >= 0) _exit(3);
      auto router = start({stream(file)}, console.writer.get(), console.writer.get());
      console.writer = UniqueFd();
      write_all(router->writer(0), text_in);
      if (router->finish(deadline) != expected) _exit(4);
    });
  };
  EXPECT_EQ(wait_child(as_nobody("stuck", false, kShort)), 0);
  EXPECT_EQ(text("stuck") == text_in, true);
  const pid_t agent = as_nobody("read", true, kLong);
  console.writer = UniqueFd();
  const std::string seen = read_all(console.reader.get());
  EXPECT_EQ(wait_child(agent), 0);
  EXPECT_EQ(seen.ends_with(text_in), true);
}

// ---- a disk that does not take it

// Writes until `full` is told, makes room, writes more; whatever is missing is where the note is.
void fill_and_free(LogRouter& router, const std::function<std::string()>& file,
                   const std::function<std::string()>& errors, const std::function<void()>& make_room) {
  const std::string before = numbered_lines(300'000), after = "after\n" + numbered_lines(1'000);
  write_all(router.writer(0), before);
  wait_until([&] { return errors().find("cannot write") != std::string::npos; });
  make_room();
  write_all(router.writer(0), after);
  EXPECT_FALSE(router.finish(kLong));
  const std::string all = before + after, got = file();
  const std::size_t note = got.find("lockstep: ");
  ASSERT_NE(note, std::string::npos) << got.size();
  const std::size_t missing = std::stoul(got.substr(note + 10));
  EXPECT_THAT(got.substr(note, 100), HasSubstr(" bytes are missing here: "));
  const std::string rest = got.substr(got.find('\n', note) + 1);
  ASSERT_GE(all.size(), missing + rest.size());
  const std::size_t kept = all.size() - missing - rest.size();
  // The note is a line of its own.
  EXPECT_EQ(got.substr(0, note) == all.substr(0, kept) + (all[kept - 1] == '\n' ? "" : "\n"), true);
  EXPECT_EQ(rest == all.substr(kept + missing), true);
  EXPECT_EQ(lines(errors()).size(), 1u) << errors();
}

TEST_F(LogRouterTest, AFileThatMayNotGrowIsToldOnceAndTriedAgain) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 100'000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  auto router = start({stream("0", -1)}, console("out").get(), console("err").get());
  setrlimit(RLIMIT_FSIZE, &before);
  fill_and_free(
      *router, [&] { return text("0"); }, [&] { return text("err"); },
      [&] { prlimit(router->pid(), RLIMIT_FSIZE, &before, nullptr); });
}

TEST_F(LogRouterTest, WhatIsMissingAtTheEndIsToldOnStderr) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 1'000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  auto router = start({stream("0", -1), stream("1", -1)}, console("out").get(), console("err").get());
  setrlimit(RLIMIT_FSIZE, &before);
  write_all(router->writer(0), std::string(5'000, 'x'));
  write_all(router->writer(1), std::string(1'500, 'y'));
  EXPECT_FALSE(router->finish(kLong));
  EXPECT_EQ(text("0"), std::string(1'000, 'x'));
  EXPECT_EQ(text("1"), std::string(1'000, 'y'));
  ASSERT_EQ(lines(text("err")).size(), 2u) << text("err");
  EXPECT_THAT(lines(text("err"))[1],
              HasSubstr("4500 bytes of output are missing, at the end of " + scratch_.file("0")));
}

TEST_F(LogRouterTest, AFullDiskIsToldOnceAndTriedAgain) {
  const std::string disk = scratch_.file("disk");
  ASSERT_EQ(mkdir(disk.c_str(), 0755), 0);
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=256k") != 0)
    GTEST_SKIP() << "no right to mount a small disk: " << std::strerror(errno);
  const std::string ballast = scratch_.write("disk/ballast", std::string(128 << 10, 'b'));
  auto router = start({stream("disk/0", -1)}, console("out").get(), console("err").get());
  fill_and_free(
      *router, [&] { return text("disk/0"); }, [&] { return text("err"); }, [&] { unlink(ballast.c_str()); });
  EXPECT_THAT(text("err"), HasSubstr(disk + "/0: No space left on device"));
  umount(disk.c_str());
}

TEST_F(LogRouterTest, AFileThatCannotBeMadeIsRefused) {
  EXPECT_THAT(usage_error([&] { start_on_files({stream("missing/0")}); }),
              HasSubstr("'" + scratch_.file("missing/0") + "': No such file"));
  LogStream filtered = stream("0");
  filtered.filter_file = scratch_.path();
  filtered.filters = {"x"};
  EXPECT_THAT(usage_error([&] { start_on_files({filtered}); }), HasSubstr("Is a directory"));
}

// ---- ends

TEST_F(LogRouterTest, SignalsThatEndProgramsAreIgnored) {
  auto router = start_on_files({stream("0", 1, ">")});
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ASSERT_EQ(kill(router->pid(), signal), 0);
  write_all(router->writer(0), "last words\n");
  EXPECT_TRUE(router->finish(kLong));
  EXPECT_EQ(text("out"), ">last words\n");
}

TEST_F(LogRouterTest, DoesNotWaitForAProcessThatWasLeftBehind) {
  auto router = start_on_files({stream("0", 1, ">")});
  const UniqueFd left_behind(dup(router->writer(0)));
  write_all(router->writer(0), "by then\n");
  EXPECT_TRUE(router->finish(kLong));
  EXPECT_EQ(text("out"), ">by then\n");
}

TEST_F(LogRouterTest, DoesNotWaitForAProcessThatWritesForEver) {
  auto router = start_on_files({stream("0", -1)});
  const pid_t writer = fork_child([&] {
    signal(SIGPIPE, SIG_DFL);
    dup2(router->writer(0), STDOUT_FILENO);
    syscall(SYS_close_range, 3U, ~0U, 0U);  // a worker has none of what the agent keeps
    for (;;) write_all(STDOUT_FILENO, "and on\n");
  });
  // Its size: who reads a file to its end while it is written, slower than it is, reads for ever.
  wait_until([&] { return std::filesystem::file_size(scratch_.file("0")) > 0; });
  EXPECT_TRUE(router->finish(kLong));
  const int status = wait_child(writer);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
}

TEST_F(LogRouterTest, EndsWithTheAgentEvenWhenTheConsoleIsStuck) {
  Pipe stuck, report;
  const std::string text_in = numbered_lines(1 << 20);
  const pid_t agent = fork_child([&] {
    auto router = start({stream("0")}, stuck.writer.get(), stuck.writer.get());
    const pid_t pid = router->pid();
    write_all(report.writer.get(), std::string_view(reinterpret_cast<const char*>(&pid), sizeof pid));
    write_all(router->writer(0), text_in);
    raise(SIGKILL);
  });
  pid_t pid = -1;
  ASSERT_EQ(read(report.reader.get(), &pid, sizeof pid), ssize_t(sizeof pid));
  const UniqueFd router(int(syscall(SYS_pidfd_open, pid, 0)));
  ASSERT_TRUE(router);
  wait_child(agent);
  pollfd ended{.fd = router.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&ended, 1, int(kLong.count())), 1);
  EXPECT_EQ(text("0") == text_in, true);
}

TEST_F(LogRouterTest, AKilledRouterBreaksNoPipeAndLosesNothingOfWhatIsInOne) {
  signal(SIGPIPE, SIG_DFL);  // whoever writes into a broken pipe dies
  LogStream filtered = stream("0", -1, ">");
  filtered.filter_file = scratch_.file("filtered");
  filtered.filters = {"after"};
  auto router = start_on_files({filtered});
  write_all(router->writer(0), "before\n");
  wait_until([&] { return text("0") == "before\n"; });
  kill(router->pid(), SIGKILL);
  pollfd ended{.fd = router->pidfd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&ended, 1, int(kLong.count())), 1);
  write_all(router->writer(0), "after\n");
  EXPECT_FALSE(router->finish(kLong));
  EXPECT_TRUE(router->filed());
  EXPECT_EQ(text("0"), "before\nafter\n");
  EXPECT_EQ(text("filtered"), ">after\n");
}

// Files first, consoles second.
TEST_F(LogRouterTest, ASignalCutsNothingOffTheFiles) {
  std::vector<LogStream> streams;
  for (const char* file : {"0", "1", "2", "3"}) {
    streams.push_back(stream(file, 1, file));
    streams.back().filter_file = scratch_.file("filtered");
    streams.back().filters = {"9"};
  }
  auto router = start_on_files(streams);
  kill(router->pid(), SIGSTOP);  // so that all of it is still in the pipes
  wait_until([&] { return process_state(router->pid()).is_stopped(); });
  const std::string text_in = numbered_lines(500'000);
  for (std::size_t i = 0; i < streams.size(); ++i) write_all(router->writer(i), text_in);
  kill(router->pid(), SIGCONT);
  base::Outlet nothing_to_say;
  EventLoop loop(nothing_to_say);
  router->finish(loop, milliseconds(0), [] { return true; });
  EXPECT_TRUE(router->filed());
  std::size_t filtered = 0;
  for (const std::string& line : lines(text_in)) filtered += line.find('9') != std::string::npos;
  for (const char* file : {"0", "1", "2", "3"}) EXPECT_EQ(text(file) == text_in, true) << file;
  EXPECT_EQ(lines(text("filtered")).size(), 4 * filtered);
}

// A router that has more to show than its console, which nobody reads, takes; and the loop of its caller.
class FullConsole : public LogRouterTest {
 protected:
  void expect_filed() {
    EXPECT_TRUE(router_->filed());
    EXPECT_EQ(text("0") == text_in_, true);
  }

  const Pipe console_;
  const std::string text_in_ = numbered_lines(1 << 20);
  std::unique_ptr<LogRouter> router_;
  base::Outlet nothing_to_say_;
  EventLoop loop_{nothing_to_say_};

 private:
  void SetUp() override {
    LogRouterTest::SetUp();
    router_ = start({stream("0")}, console_.writer.get(), console_.writer.get());
    write_all(router_->writer(0), text_in_);
  }
};

TEST_F(FullConsole, TheCallersLoopGoesOnWhileItFinishes) {
  bool stopped = false;
  const EventLoop::Handle timer = loop_.at(EventLoop::Clock::now() + milliseconds(20), [&stopped] { stopped = true; });
  EXPECT_FALSE(router_->finish(loop_, kLong, [&stopped] { return stopped; }));
  EXPECT_TRUE(stopped);
  expect_filed();
}

TEST_F(FullConsole, ALoopThatCannotWatchItIsNoReasonToThrow) {
  const EventLoop::Handle in_the_way = loop_.watch(router_->pidfd(), [] {});  // one watch for a descriptor
  EXPECT_FALSE(router_->finish(loop_, kLong, [] { return false; }));
  expect_filed();
}

// As where the disk stands still: the agent would hang with it.
TEST_F(FullConsole, OneThatCannotBeKilledIsLeftBehind) {
  const pid_t pid = router_->pid();
  {
    const lockstep::testing::ZombieKeeper keeper(pid);
    if (!keeper.keeps()) GTEST_SKIP() << "no ptrace here";
    EXPECT_FALSE(router_->finish(kShort));
    EXPECT_TRUE(router_->left_behind());
  }
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  expect_filed();
}

std::size_t open_descriptors(const std::string& process) {
  return std::size_t(std::distance(std::filesystem::directory_iterator("/proc/" + process + "/fd"),
                                   std::filesystem::directory_iterator()));
}

TEST_F(LogRouterTest, LeaksNothing) {
  const std::size_t before = open_descriptors("self");
  for (int i = 0; i < 20; ++i) {
    auto router = start_on_files({stream("0"), stream("1", 2)});
    if (i % 2 == 0) router->finish(kLong);
  }
  EXPECT_EQ(open_descriptors("self"), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(LogRouterTest, HoldsNothingOfTheAgent) {
  const Pipe of_the_agent;
  auto router = start_on_files({stream("0"), stream("1", -1)});
  // Three standard streams, two pipes, two files, the way to the agent.
  wait_until([&] { return open_descriptors(std::to_string(router->pid())) == 8; });
  EXPECT_TRUE(router->finish(kLong));
}

}  // namespace
}  // namespace lockstep::launch
