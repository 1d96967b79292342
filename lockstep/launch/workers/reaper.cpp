#include "lockstep/launch/workers/reaper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>

#include "lockstep/base/control_page.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/boot_clock.h"

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

// The epoch: never.
void ring_at(int timer, BootClock::time_point when) {
  const std::chrono::nanoseconds time = when.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const itimerspec at{.it_interval = {}, .it_value = {.tv_sec = seconds.count(), .tv_nsec = (time - seconds).count()}};
  timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, nullptr);
}

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
  const int timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
  if (timer < 0) _exit(1);
  Groups groups;
  for (int word = 0;;) {
    std::array<pollfd, 2> ready{
        {{.fd = 0, .events = POLLIN, .revents = 0}, {.fd = timer, .events = POLLIN, .revents = 0}}};
    const int count = poll(ready.data(), ready.size(), -1);
    if (count < 0 && errno == EINTR) continue;
    if (count > 0 && ready[0].revents == 0) {  // else another limit may wait there
      groups.kill_all();
      ring_at(timer, {});
      continue;
    }
    const ssize_t got = read(0, &word, sizeof word);
    if (got == ssize_t(sizeof word) && word < kTimes)
      ring_at(timer, BootClock::now() + std::chrono::milliseconds(kTimes - word));
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
