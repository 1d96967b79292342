#include "lockstep/launch/agent/leash.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::seconds kFirstLine{60};
constexpr std::size_t kLongestLine = 200;

// Byte by byte: what follows the line is the agent's.
std::string read_first_line(int fd) {
  const auto deadline = std::chrono::steady_clock::now() + kFirstLine;
  for (std::string line;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd input{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&input, 1, int(std::max<std::int64_t>(0, left.count())));
    char byte = 0;
    const ssize_t count = ready > 0 ? ::read(fd, &byte, 1) : -1;
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || line.size() == kLongestLine)
      throw UsageError("run: --by-starter: no key has come on standard input; lockstep run --hosts gives this flag");
    if (byte == '\n') return line;
    line += byte;
  }
}

}  // namespace

LeashStart take_leash() {
  LeashStart start;
  start.leash = base::UniqueFd(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  const base::UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!start.leash || !nothing || dup2(nothing.get(), STDIN_FILENO) < 0) throw_errno("launcher: standard input");
  start.first_line = read_first_line(start.leash.get());
  return start;
}

Leash::Leash(EventLoop& loop, int fd, std::function<void(int signal)> on_signal, std::function<void()> on_end)
    : fd_(fd),
      on_signal_(std::move(on_signal)),
      on_end_(std::move(on_end)),
      watch_(loop.watch(fd, [this] { read(); })) {}

void Leash::end() {
  if (const std::function<void()> on_end = std::exchange(on_end_, nullptr)) on_end();
}

void Leash::read() {
  std::array<char, 256> bytes;
  const ssize_t count = ::read(fd_, bytes.data(), bytes.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count <= 0) {
    watch_ = {};
    return end();
  }
  for (ssize_t i = 0; i < count; ++i) {
    if (bytes[std::size_t(i)] != '\n') {
      if (line_.size() < kLongestLine) line_ += bytes[std::size_t(i)];
      continue;
    }
    const int signal = std::atoi(line_.c_str());
    const bool lets_go = line_ + '\n' == kLetGo;
    line_.clear();
    if (lets_go) end();
    if (signal > 0 && signal < NSIG) on_signal_(signal);
  }
}

}  // namespace lockstep::launch
