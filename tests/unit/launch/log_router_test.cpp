#include "lockstep/launch/log_router.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <thread>

#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"
#include "tests/support/wait_until.h"

namespace lockstep::launch {
namespace {

using base::UniqueFd;
using lockstep::testing::read_file;
using lockstep::testing::ScratchFolder;
using lockstep::testing::usage_error;
using lockstep::testing::wait_until;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kLong{30'000};
constexpr milliseconds kShort{300};

struct Pipe {
  UniqueFd reader, writer;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    reader = UniqueFd(ends[0]);
    writer = UniqueFd(ends[1]);
  }
};

// A router whose consoles are these descriptors; the test's own are back when this returns.
std::unique_ptr<LogRouter> start(const std::vector<LogStream>& streams, int out, int err) {
  std::fflush(nullptr);
  const UniqueFd saved_out(dup(STDOUT_FILENO)), saved_err(dup(STDERR_FILENO));
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  std::unique_ptr<LogRouter> router;
  const auto restore = [&] {
    dup2(saved_out.get(), STDOUT_FILENO);
    dup2(saved_err.get(), STDERR_FILENO);
  };
  try {
    router = std::make_unique<LogRouter>(streams);
  } catch (...) {
    restore();
    throw;
  }
  restore();
  return router;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count <= 0) throw std::runtime_error("write");
    text.remove_prefix(std::size_t(count));
  }
}

std::string read_all(int fd) {
  std::string text;
  char buffer[1 << 16];
  for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, std::size_t(got));
  return text;
}

pid_t fork_child(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  try {
    body();
    _exit(0);
  } catch (...) {
    _exit(1);
  }
}

int wait_child(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

std::string random_bytes(std::size_t count) {
  std::mt19937 random(7);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = char(random() & 0xFF);
  return bytes;
}

std::string numbered_lines(std::size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) text += "line " + std::to_string(i) + "\n";
  return text;
}

class LogRouterTest : public ::testing::Test {
 protected:
  UniqueFd console(const std::string& name) const {
    return UniqueFd(open(scratch_.file(name).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  }
  std::string text(const std::string& name) const { return read_file(scratch_.file(name)); }
  LogStream stream(const std::string& file, int console = 1, const std::string& prefix = "") const {
    return {.file = scratch_.file(file), .console = console, .prefix = prefix, .filter_file = "", .filters = {}};
  }
  std::unique_ptr<LogRouter> start_on_files(const std::vector<LogStream>& streams) const {
    return start(streams, console("out").get(), console("err").get());
  }

  ScratchFolder scratch_;
};

TEST_F(LogRouterTest, FilesHoldTheBytesAndConsolesThePrefixedLines) {
  auto router = start_on_files({stream("0", 1, "[a0]:"), stream("1", 2, "[a1]:"), stream("2", -1, "[a2]:")});
  write_all(router->writer(0), "one\ntwo\n");
  write_all(router->writer(1), "three\r\n\nfour");
  write_all(router->writer(2), "unseen\n");
  EXPECT_TRUE(router->finish(kLong));
  EXPECT_TRUE(router->finish(kLong));
  EXPECT_EQ(text("0"), "one\ntwo\n");
  EXPECT_EQ(text("1"), "three\r\n\nfour");
  EXPECT_EQ(text("2"), "unseen\n");
  EXPECT_EQ(text("out"), "[a0]:one\n[a0]:two\n");
  EXPECT_EQ(text("err"), "[a1]:three\r\n[a1]:\n[a1]:four\n");
}

TEST_F(LogRouterTest, ACarriageReturnAloneEndsALineWhereverTheWritesAreCut) {
  auto router = start_on_files({stream("0", 1, ">")});
  const std::string text_in = "\r10%\r20%\r\nend\r\r\nx\r";
  for (std::size_t i = 0; i < text_in.size(); ++i) {
    write_all(router->writer(0), text_in.substr(i, 1));
    wait_until([&] { return text("0").size() == i + 1; });
  }
  EXPECT_TRUE(router->finish(kLong));
  EXPECT_EQ(text("0"), text_in);
  EXPECT_EQ(text("out"), ">\r>10%\r>20%\r\n>end\r>\r\n>x\r");
}

TEST_F(LogRouterTest, AWholeLineIsShownWhileItsWriterGoesOn) {
  auto router = start_on_files({stream("0", 1, ">")});
  write_all(router->writer(0), "shown\nnot ye");
  wait_until([&] { return text("out") == ">shown\n"; });
  write_all(router->writer(0), "t\n");
  wait_until([&] { return text("out") == ">shown\n>not yet\n"; });
  EXPECT_TRUE(router->finish(kLong));
}

TEST_F(LogRouterTest, GarbagePassesUntouched) {
  const std::string garbage = random_bytes(3 << 20);
  auto router = start_on_files({stream("0")});
  write_all(router->writer(0), garbage);
  EXPECT_TRUE(router->finish(kLong));
  EXPECT_EQ(text("0") == garbage, true);
  EXPECT_EQ(text("out") == garbage + (garbage.back() == '\n' || garbage.back() == '\r' ? "" : "\n"), true);
}

TEST_F(LogRouterTest, LongLinesOfTwoRanksAreNotMixed) {
  Pipe console;
  auto router = start({stream("0", 1, "[0]"), stream("1", 2, "[1]")}, console.writer.get(), console.writer.get());
  console.writer = UniqueFd();
  std::string seen;
  std::thread reader([&] { seen = read_all(console.reader.get()); });
  for (int part = 0; part < 5; ++part) {
    for (const std::size_t rank : {0U, 1U})
      write_all(router->writer(rank), std::string(1 << 20, rank == 0 ? 'a' : 'b'));
    write_all(router->writer(1), "\nshort\n");
  }
  write_all(router->writer(0), "\n");
  EXPECT_TRUE(router->finish(kLong));
  reader.join();
  const auto all = lines(seen);
  ASSERT_EQ(all.size(), 11u);
  for (const std::string& line : all)
    EXPECT_TRUE(line == "[0]" + std::string(5 << 20, 'a') || line == "[1]" + std::string(1 << 20, 'b') ||
                line == "[1]short")
        << line.size();
}

TEST_F(LogRouterTest, LinesOfManyWritersStayWhole) {
  constexpr int kWriters = 8, kLines = 2'000;
  Pipe console;
  std::vector<LogStream> streams;
  for (int i = 0; i < kWriters; ++i) streams.push_back(stream(std::to_string(i), 1 + i % 2, std::to_string(i) + ":"));
  auto router = start(streams, console.writer.get(), console.writer.get());
  console.writer = UniqueFd();
  std::vector<pid_t> writers;
  for (int i = 0; i < kWriters; ++i)
    writers.push_back(fork_child([&, i] {
      for (int n = 0; n < kLines; ++n) {
        const std::string line = std::to_string(n) + " " + std::string(std::size_t(n * 7 % 300), char('a' + i)) + "\n";
        // Cut in two, so that half lines are in the pipes.
        write_all(router->writer(std::size_t(i)), line.substr(0, line.size() / 2));
        write_all(router->writer(std::size_t(i)), line.substr(line.size() / 2));
      }
    }));
  router->close_writers();
  std::string seen;
  std::thread reader([&] { seen = read_all(console.reader.get()); });
  for (const pid_t pid : writers) EXPECT_EQ(wait_child(pid), 0);
  EXPECT_TRUE(router->finish(kLong));
  reader.join();
  std::map<int, int> next;
  for (const std::string& line : lines(seen)) {
    const int writer = line[0] - '0';
    const int n = next[writer]++;
    ASSERT_EQ(line, std::to_string(writer) + ":" + std::to_string(n) + " " +
                        std::string(std::size_t(n * 7 % 300), char('a' + writer)));
  }
  for (int i = 0; i < kWriters; ++i) EXPECT_EQ(next[i], kLines);
}

TEST_F(LogRouterTest, WithoutAFileLinesReachTheConsole) {
  LogStream unnamed = stream("", 1, ">");
  unnamed.file.clear();
  const std::string text_in = numbered_lines(5 << 20);
  auto router = start_on_files({unnamed});
  write_all(router->writer(0), text_in);
  EXPECT_TRUE(router->finish(kLong));
  const auto seen = lines(text("out")), sent = lines(text_in);
  ASSERT_EQ(seen.size(), sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) ASSERT_EQ(seen[i], ">" + sent[i]);
}

TEST_F(LogRouterTest, FilteredLinesOfAllRanksShareAFile) {
  std::vector<LogStream> streams = {stream("0", 1, "[0]:"), stream("1", -1, "[1]:"), stream("2", 1, "[2]:")};
  for (const int i : {0, 1}) {
    streams[std::size_t(i)].filter_file = scratch_.file("filtered");
    streams[std::size_t(i)].filters = {"loss", "accuracy"};
  }
  auto router = start_on_files(streams);
  // In a line longer than any buffer, across the seam of two reads.
  const std::string far = std::string((64 << 10) - 2, 'x') + "loss" + std::string(1 << 20, 'x') + "\n";
  const std::string none = std::string(1 << 20, 'y') + "\n";
  write_all(router->writer(0), "loss 1\nother\n" + far + none + "accuracy\n");
  write_all(router->writer(1), "nothing\nthe loss");
  write_all(router->writer(2), "loss elsewhere\n");
  EXPECT_TRUE(router->finish(kLong));
  std::string of_0, of_1;
  for (const std::string& line : lines(text("filtered"))) (line.starts_with("[0]") ? of_0 : of_1) += line + "\n";
  EXPECT_EQ(of_0 == "[0]:loss 1\n[0]:" + far + "[0]:accuracy\n", true);
  EXPECT_EQ(of_1, "[1]:the loss\n");
}

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
    for (;;) write_all(router->writer(0), "and on\n");
  });
  wait_until([&] { return !text("0").empty(); });
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

TEST_F(LogRouterTest, AKilledRouterIsNoticed) {
  auto router = start_on_files({stream("0")});
  kill(router->pid(), SIGKILL);
  pollfd ended{.fd = router->pidfd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&ended, 1, int(kLong.count())), 1);
  EXPECT_FALSE(router->finish(kLong));
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
