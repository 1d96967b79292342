#include "lockstep/launch/machine/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {
namespace {

// Only a process stuck in the kernel takes longer to die; then it is left to whoever adopts it.
constexpr int kDeathWait = 1'000;  // milliseconds

using Clock = std::chrono::steady_clock;

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("launcher: pipe");
    read = base::UniqueFd(ends[0]);
    write = base::UniqueFd(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  base::UniqueFd read;
  base::UniqueFd write;
};

// Takes what is there; false at the end of the stream.
bool drain(int fd, std::string& text) {
  constexpr std::size_t most = 64 << 10;
  std::array<char, 4096> piece;
  for (;;) {
    const ssize_t length = read(fd, piece.data(), piece.size());
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) return length < 0;
    text.append(piece.data(), std::min(std::size_t(length), most - std::min(most, text.size())));
  }
}

pid_t start(const std::vector<std::string>& command, int out, int err, int& error) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  pid_t pid = -1;
  error = posix_spawn(&pid, argv.front(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

// Collects output until the process has ended; false when that takes too long.
bool collect(int pidfd, int out, int err, ProbeResult& result, Clock::time_point deadline) {
  std::array<pollfd, 3> watched = {{{pidfd, POLLIN, 0}, {out, POLLIN, 0}, {err, POLLIN, 0}}};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = left > 0 ? poll(watched.data(), watched.size(), int(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    // At the end of a stream it is looked at no more: poll would return at once for ever.
    if (watched[1].fd >= 0 && !drain(out, result.out)) watched[1].fd = -1;
    if (watched[2].fd >= 0 && !drain(err, result.err)) watched[2].fd = -1;
    if (watched[0].revents == 0) continue;
    drain(out, result.out);
    drain(err, result.err);
    return true;
  }
}

}  // namespace

ProbeResult run_probe(const std::vector<std::string>& command, std::chrono::milliseconds deadline) {
  ProbeResult result;
  Pipe out;
  Pipe err;
  int error = 0;
  const pid_t pid = start(command, out.write.get(), err.write.get(), error);
  if (pid < 0) {
    result.err = std::strerror(error);
    return result;
  }
  out.write = base::UniqueFd();
  err.write = base::UniqueFd();
  const base::UniqueFd pidfd(int(syscall(SYS_pidfd_open, pid, 0)));
  const bool ended = pidfd && collect(pidfd.get(), out.read.get(), err.read.get(), result, Clock::now() + deadline);
  if (!ended) {
    kill(pid, SIGKILL);
    pollfd dying{pidfd.get(), POLLIN, 0};
    poll(&dying, 1, kDeathWait);
  }
  int status = 0;
  waitpid(pid, &status, WNOHANG);
  if (ended)
    result.status = status;
  else
    result.err = "no answer within " + std::to_string(deadline.count()) + " ms";
  return result;
}

}  // namespace lockstep::launch
