#pragma once

// What the tests of the log router share: its consoles, writers and readers.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <sstream>

#include "lockstep/launch/output/log_router.h"
#include "tests/support/pipe.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::launch {

using base::UniqueFd;
using lockstep::testing::Pipe;
using lockstep::testing::read_file;
using lockstep::testing::ScratchFolder;
using std::chrono::milliseconds;

inline constexpr milliseconds kLong{30'000};
inline constexpr milliseconds kShort{300};

// A router whose consoles are these descriptors; the test's own are back when this returns.
inline std::unique_ptr<LogRouter> start(const std::vector<LogStream>& streams, int out, int err) {
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

inline void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count <= 0) throw std::runtime_error("write");
    text.remove_prefix(std::size_t(count));
  }
}

inline std::string read_all(int fd) {
  std::string text;
  char buffer[1 << 16];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, std::size_t(got));
  return text;
}

inline pid_t fork_child(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  try {
    body();
    _exit(0);
  } catch (...) {
    _exit(1);
  }
}

inline int wait_child(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

inline std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

inline std::string random_bytes(std::size_t count) {
  std::mt19937 random(7);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = char(random() & 0xFF);
  return bytes;
}

inline std::string numbered_lines(std::size_t bytes) {
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

}  // namespace lockstep::launch
