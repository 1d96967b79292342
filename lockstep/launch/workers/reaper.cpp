#include "lockstep/launch/workers/reaper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <optional>

#include "lockstep/base/control_page.h"
#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

// The process groups that may have living members; no memory is allocated after the fork.
class Groups {
 public:
  void hear(int word) {
    if (word > 0 && count_ < groups_.size()) groups_[count_++] = word;
    if (word < 0) count_ = std::size_t(std::remove(groups_.begin(), end(), -word) - groups_.begin());
  }
  void kill_all() {
    for (auto group = groups_.begin(); group != end(); ++group) kill(-*group, SIGKILL);
  }

 private:
  std::array<int, base::kMaxLocalRanks>::iterator end() { return groups_.begin() + std::ptrdiff_t(count_); }

  std::array<int, base::kMaxLocalRanks> groups_{};
  std::size_t count_ = 0;
};

using Clock = std::chrono::steady_clock;

// Words below this are times: so many milliseconds below it. All numbers of processes are nearer to 0.
constexpr int kTimes = -(1 << 30);

[[noreturn]] void reap(int pipe) {
  // A session of its own: signals to the agent's process group or terminal do not reach it.
  setsid();
  prctl(PR_SET_NAME, "lockstep-reaper");
  // Nothing of the agent may be kept open by it, above all not the pipe's other end.
  if (dup2(pipe, 0) != 0) _exit(1);
  // Without it the pipe would never end, and neither would the reaper.
  if (syscall(SYS_close_range, 1U, ~0U, 0U) != 0) _exit(1);
  Groups groups;
  std::optional<Clock::time_point> until;
  for (int word = 0;;) {
    pollfd readable{.fd = 0, .events = POLLIN, .revents = 0};
    const auto left = until ? std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count() : -1;
    if (poll(&readable, 1, until ? int(std::max<std::int64_t>(0, left)) : -1) == 0) {
      groups.kill_all();
      until.reset();
      continue;
    }
    const ssize_t got = read(0, &word, sizeof word);
    if (got == ssize_t(sizeof word) && word < kTimes)
      until = Clock::now() + std::chrono::milliseconds(kTimes - word);
    else if (got == ssize_t(sizeof word))
      groups.hear(word);
    else if (got == 0 || errno != EINTR)
      break;
  }
  groups.kill_all();
  _exit(0);
}

}  // namespace

Reaper::Reaper() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("launcher: pipe");
  base::UniqueFd read_end(ends[0]);
  pipe_ = base::UniqueFd(ends[1]);
  pid_ = fork();
  if (pid_ == 0) reap(read_end.get());
  if (pid_ < 0) throw_errno("launcher: cannot start the reaper");
  pidfd_ = base::UniqueFd(int(syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_) throw_errno("launcher: pidfd_open");  // the pipe's end ends the process
}

Reaper::~Reaper() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Reaper::kill_after(std::chrono::milliseconds time) {
  constexpr std::int64_t kMost = (1 << 30) - 1;
  const int word = kTimes - int(std::clamp<std::int64_t>(time.count(), 1, kMost));
  [[maybe_unused]] const ssize_t written = write(pipe_.get(), &word, sizeof word);
}

void Reaper::forget(pid_t group) {
  const int word = -int(group);
  // A reaper that was killed by hand is no reason to stop the job.
  [[maybe_unused]] const ssize_t written = write(pipe_.get(), &word, sizeof word);
}

}  // namespace lockstep::launch
