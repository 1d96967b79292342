#include "lockstep/launch/workers/reaper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>

#include "lockstep/base/control_page.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/boot_clock.h"
#include "lockstep/rendezvous/local_socket.h"

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

// Its descriptors: the agent's words, and where connections are passed on.
constexpr int kWords = 0, kPassedOn = 1;
// How many connections it holds; the kernel ends those of more.
constexpr std::size_t kMostConnections = 1'024;
// How long the others may take to hear that the agent has ended.
constexpr std::chrono::milliseconds kPartingTime{500};

// What the reaper waits for: words of the agent, a time, and connections to other agents, passed on by this one.
class Vigil {
 public:
  explicit Vigil(int timer) {
    add(kWords, POLLIN);
    add(timer, POLLIN);
    add(kPassedOn, POLLIN);
  }

  int wait() { return poll(all_.data(), count_, -1); }
  bool has_word() const { return all_[0].revents != 0; }
  bool time_is_up() const { return all_[1].revents != 0; }

  // A connection that the agent has ended is let go: it would not be over as long as somebody has it.
  void look_at_connections() {
    if (all_[kOthers - 1].revents != 0) take();
    sweep([](const pollfd&) { return true; });
  }

  // The agent has died. The kernel would end a connection in which something is unread with a reset, as a firewall may
  // do while the agent lives. So they are ended here, and read until the others have ended them, too.
  void part() {
    using Clock = std::chrono::steady_clock;
    take();
    for (std::size_t i = kOthers; i < count_; ++i) {
      shutdown(all_[i].fd, SHUT_WR);
      all_[i].events = POLLIN;
    }
    for (const Clock::time_point end = Clock::now() + kPartingTime; count_ > kOthers;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
      const int count = left <= 0 ? 0 : poll(all_.data() + kOthers, count_ - kOthers, int(left));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;
      sweep([](const pollfd& one) { return is_over(one.fd); });
    }
  }

 private:
  static constexpr std::size_t kOthers = 3;

  void add(int fd, short events) { all_[count_++] = {.fd = fd, .events = events, .revents = 0}; }
  void take() {
    while (base::UniqueFd fd = rendezvous::receive_descriptor(kPassedOn))
      if (count_ < all_.size()) add(fd.release(), 0);  // its end is an event all the same
  }
  // Lets go those with an event of which that is said.
  void sweep(bool (*is_gone)(const pollfd&)) {
    for (std::size_t i = kOthers; i < count_;) {
      if (all_[i].revents == 0 || !is_gone(all_[i])) {
        ++i;
        continue;
      }
      close(all_[i].fd);
      all_[i] = all_[--count_];
    }
  }
  static bool is_over(int fd) {
    std::array<char, 16 * 1024> bytes;
    const ssize_t got = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  }

  std::array<pollfd, kOthers + kMostConnections> all_{};
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

[[noreturn]] void reap(int pipe, int passed_on) {
  // A session of its own: signals to the agent's process group or terminal do not reach it.
  setsid();
  prctl(PR_SET_NAME, "lockstep-reaper");
  // Nothing of the agent may be kept open by it, above all not the pipe's other end. Each may have the other's number.
  const int above = fcntl(passed_on, F_DUPFD, kPassedOn + 1);
  if (above < 0 || dup2(pipe, kWords) != kWords || dup2(above, kPassedOn) != kPassedOn) _exit(1);
  // Without it the pipe would never end, and neither would the reaper.
  if (syscall(SYS_close_range, unsigned(kPassedOn + 1), ~0U, 0U) != 0) _exit(1);
  const int timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
  if (timer < 0) _exit(1);
  Groups groups;
  Vigil vigil(timer);
  for (int word = 0;;) {
    const int count = vigil.wait();
    if (count < 0 && errno == EINTR) continue;
    if (count > 0) vigil.look_at_connections();
    if (count > 0 && !vigil.has_word()) {  // else another limit may wait there
      if (vigil.time_is_up()) {
        groups.kill_all();
        ring_at(timer, {});
      }
      continue;
    }
    const ssize_t got = read(kWords, &word, sizeof word);
    if (got == ssize_t(sizeof word) && word < kTimes)
      ring_at(timer, BootClock::now() + std::chrono::milliseconds(kTimes - word));
    else if (got == ssize_t(sizeof word))
      groups.hear(word);
    else if (got == 0 || errno != EINTR)
      break;
  }
  groups.kill_all();
  vigil.part();
  _exit(0);
}

}  // namespace

Reaper::Reaper() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("launcher: pipe");
  base::UniqueFd read_end(ends[0]);
  pipe_ = base::UniqueFd(ends[1]);
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    throw_errno("launcher: socketpair");
  const base::UniqueFd passed_on(ends[0]);
  connections_ = base::UniqueFd(ends[1]);
  pid_ = fork();
  if (pid_ == 0) reap(read_end.get(), passed_on.get());
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

// Where it is not taken (the reaper was killed by hand, or a thousand come at once) the kernel ends the connection.
void Reaper::hold(int connection) { rendezvous::send_descriptor(connections_.get(), connection); }

void Reaper::forget(pid_t group) {
  const int word = -int(group);
  // A reaper that was killed by hand is no reason to stop the job.
  [[maybe_unused]] const ssize_t written = write(pipe_.get(), &word, sizeof word);
}

}  // namespace lockstep::launch
