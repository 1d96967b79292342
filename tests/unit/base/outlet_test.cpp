#include "lockstep/base/outlet.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>

#include "tests/support/pipe.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/terminal.h"
#include "tests/support/wait_until.h"

namespace lockstep::base {
namespace {

using Clock = Outlet::Clock;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::Pipe;
using testing::read_file;
using testing::ScratchFolder;
using testing::Terminal;
using testing::wait_until;

constexpr std::chrono::seconds kLong{30};

// Says until something has to wait.
std::string fill(Outlet& outlet) {
  std::string said;
  while (!outlet.pending()) {
    const std::string line = "line " + std::to_string(said.size()) + "\n";
    outlet.say(line);
    said += line;
  }
  return said;
}

TEST(Outlet, WhatIsTakenIsWrittenAtOnce) {
  const Pipe pipe;
  Outlet outlet = Outlet::console(pipe.writer.get());
  outlet.say("result\n");
  EXPECT_TRUE(outlet.offer("progress\n"));
  EXPECT_FALSE(outlet.pending());
  EXPECT_EQ(pipe.read_all(), "result\nprogress\n");
}

TEST(Outlet, ProgressIsDroppedAndResultsAreKeptInOrderWhereNobodyReads) {
  const Pipe pipe;
  Outlet outlet = Outlet::console(pipe.writer.get());
  std::string said = fill(outlet);
  EXPECT_FALSE(outlet.offer("progress\n"));
  outlet.say("first error\n");
  outlet.say("second error\n");
  EXPECT_FALSE(outlet.flush(Clock::now()));
  std::string seen;
  wait_until([&] {
    seen += pipe.read_all();
    outlet.step();
    return !outlet.pending();
  });
  seen += pipe.read_all();
  EXPECT_EQ(seen, said + "first error\nsecond error\n");
  EXPECT_TRUE(outlet.offer("progress\n"));
}

TEST(Outlet, NobodyElsesDescriptorIsMadeNonBlocking) {
  const Pipe pipe;
  const Terminal terminal;
  for (const int fd : {pipe.writer.get(), terminal.screen()}) {
    Outlet outlet = Outlet::console(fd);
    outlet.say("x");
    EXPECT_EQ(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  }
}

TEST(Outlet, ATerminalThatStandsStill) {
  for (const bool stopped_by_keys : {true, false}) {
    const Terminal terminal;
    Outlet outlet = Outlet::console(terminal.screen());
    if (stopped_by_keys)
      terminal.stop();
    else
      terminal.fill();
    EXPECT_FALSE(outlet.offer("progress\n"));
    outlet.say("error\n");
    EXPECT_TRUE(outlet.pending());
    if (stopped_by_keys) terminal.go_on();
    std::string seen;
    wait_until([&] {
      seen += terminal.read_all();
      outlet.step();
      return seen.ends_with("error\r\n");
    });
    EXPECT_THAT(seen, ::testing::Not(HasSubstr("progress")));
  }
}

TEST(Outlet, ProgressThatWasTakenInPartIsFinishedBeforeTheNextWord) {
  const Terminal terminal;
  Outlet outlet = Outlet::console(terminal.screen());
  terminal.fill_but_for_little();
  std::string progress(3'000, 'p');
  progress.back() = '!';
  const bool begun = outlet.offer(progress);
  outlet.say("error\n");
  std::string seen;
  wait_until([&] {
    seen += terminal.read_all();
    outlet.step();
    return seen.ends_with("error\r\n");
  });
  EXPECT_THAT(seen, EndsWith((begun ? progress : std::string()) + "error\r\n"));
}

TEST(Outlet, WaitsForADescriptorAndWritesMeanwhile) {
  const Pipe console, event;
  Outlet outlet = Outlet::console(console.writer.get());
  const std::string said = fill(outlet);
  EXPECT_FALSE(outlet.wait(event.reader.get(), Clock::now() + std::chrono::milliseconds(20)));
  const pid_t reader = fork();
  if (reader == 0) {
    // Reads all of it, and only then lets the event happen.
    std::string seen;
    char piece[4096];
    while (seen.size() < said.size()) {
      const ssize_t count = read(console.reader.get(), piece, sizeof piece);
      if (count <= 0) _exit(1);
      seen.append(piece, std::size_t(count));
    }
    _exit(seen == said && write(event.writer.get(), "!", 1) == 1 ? 0 : 1);
  }
  EXPECT_TRUE(outlet.wait(event.reader.get(), Clock::now() + kLong));
  EXPECT_FALSE(outlet.pending());
  int status = -1;
  waitpid(reader, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Outlet, FlushGivesUpWhenTold) {
  const Pipe console, stop;
  Outlet outlet = Outlet::console(console.writer.get());
  fill(outlet);
  ASSERT_EQ(write(stop.writer.get(), "!", 1), 1);
  EXPECT_FALSE(outlet.flush(Clock::time_point::max(), stop.reader.get()));
  EXPECT_TRUE(outlet.pending());
}

TEST(Outlet, WhoeverIsGoneIsNotSpokenTo) {
  signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  Outlet outlet = Outlet::console(pipe.writer.get());
  fill(outlet);
  pipe.reader = UniqueFd();
  outlet.say("more");
  EXPECT_TRUE(outlet.closed());
  EXPECT_EQ(outlet.error(), EPIPE);
  EXPECT_FALSE(outlet.pending());
  for (const int fd : {pipe.writer.get(), -1}) {
    Outlet gone = Outlet::console(fd);
    EXPECT_FALSE(gone.offer("x"));
    gone.say("x");
    EXPECT_FALSE(gone.flush(Clock::now() + kLong));
    EXPECT_FALSE(gone.pending());
  }
}

TEST(Outlet, SocketsAndFiles) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd one(ends[0]), other(ends[1]);
  Outlet socket = Outlet::console(one.get());
  fill(socket);
  EXPECT_FALSE(socket.offer("progress"));
  const ScratchFolder folder;
  const UniqueFd file(open(folder.file("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(write(file.get(), "before ", 7), 7);
  Outlet outlet = Outlet::console(file.get());  // its offset is shared
  EXPECT_TRUE(outlet.offer("progress "));
  outlet.say("result");
  EXPECT_EQ(read_file(folder.file("out")), "before progress result");
}

// A terminal or pipe of another user: what a process has that gave up root.
TEST(Outlet, WhatCannotBeOpenedAgainIsNotWaitedForEither) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  const Pipe pipe;
  fchmod(pipe.writer.get(), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    if (open(("/proc/self/fd/" + std::to_string(pipe.writer.get())).c_str(), O_WRONLY | O_NONBLOCK) >= 0) _exit(3);
    Outlet outlet = Outlet::console(pipe.writer.get());
    std::string said = fill(outlet);
    if (outlet.offer("progress")) _exit(4);
    outlet.say("end\n");
    said += "end\n";
    std::string seen;
    wait_until([&] {
      seen += pipe.read_all();
      outlet.step();
      return seen.size() == said.size();
    });
    _exit(seen == said ? 0 : 5);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// `stty tostop`: whoever writes in the background is stopped, but not an agent.
TEST(Outlet, ATerminalThatStopsBackgroundWritersDoesNotStopIt) {
  const Terminal terminal;
  const auto [result, seen] = terminal.in_session([&] {
    terminal.stop_background_writers();
    const pid_t background = fork();
    if (background == 0) {
      setpgid(0, 0);
      Outlet outlet = Outlet::console(terminal.screen());
      outlet.say("from the background\n");
      sigset_t mask;
      sigprocmask(SIG_BLOCK, nullptr, &mask);
      _exit(sigismember(&mask, SIGTTOU) == 0 ? 0 : 3);  // it is as it was
    }
    int status = -1;
    waitpid(background, &status, WUNTRACED);
    if (WIFSTOPPED(status)) kill(background, SIGKILL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(seen, "from the background\r\n");
}

// A worker leads a session of its own, where /dev/tty is no terminal; what it was given still is.
TEST(Outlet, TheTerminalOfAnotherSessionIsStillOne) {
  const Terminal terminal;
  const auto [result, seen] = terminal.in_session([&] {
    const UniqueFd tty(open("/dev/tty", O_WRONLY | O_CLOEXEC));
    if (!tty) return 3;
    const pid_t worker = fork();
    if (worker == 0) {
      setsid();
      Outlet outlet = Outlet::console(tty.get());
      outlet.say("a result\n");
      _exit(outlet.flush(Clock::now() + kLong) ? 0 : 4);
    }
    int status = -1;
    waitpid(worker, &status, 0);
    return WEXITSTATUS(status);
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(seen, "a result\r\n");
}

TEST(Outlet, AFullDiskIsTriedAgain) {
  const ScratchFolder folder;
  const UniqueFd file(open(folder.file("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 4, .rlim_max = before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  Outlet outlet = Outlet::console(file.get());
  outlet.say("123456");
  EXPECT_EQ(outlet.error(), EFBIG);
  EXPECT_TRUE(outlet.pending());
  EXPECT_GT(outlet.rests_until(), Clock::now() - std::chrono::seconds(60));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(outlet.flush(Clock::now() + kLong));
  EXPECT_EQ(read_file(folder.file("out")), "123456");
}

}  // namespace
}  // namespace lockstep::base
