#include "lockstep/base/outlet.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>

namespace lockstep::base {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTerminalRest{20};
constexpr milliseconds kDiskRest{1'000};

bool disk_is_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

bool has_room(int fd) {
  pollfd room{.fd = fd, .events = POLLOUT, .revents = 0};
  return poll(&room, 1, 0) == 1;
}

// The calling thread's signal mask, changed for a while.
class Mask {
 public:
  Mask(int how, int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(how, &set, &before_);
  }
  ~Mask() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Mask(const Mask&) = delete;
  Mask& operator=(const Mask&) = delete;

 private:
  sigset_t before_{};
};

// SIGALRM to this thread every 100 ms: a system call that waits ends with EINTR, or with what it has done so far.
class Interrupter {
 public:
  Interrupter() {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, &before_);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGALRM;
    event._sigev_un._tid = pid_t(syscall(SYS_gettid));
    made_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    const timespec interval{.tv_sec = 0, .tv_nsec = 100'000'000};
    const itimerspec setting{.it_interval = interval, .it_value = interval};
    if (made_) timer_settime(timer_, 0, &setting, nullptr);
  }
  ~Interrupter() {
    if (made_) timer_delete(timer_);
    sigaction(SIGALRM, &before_, nullptr);
  }
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;

  bool made() const { return made_; }

 private:
  Mask mask_{SIG_UNBLOCK, SIGALRM};
  struct sigaction before_ {};
  timer_t timer_{};
  bool made_ = false;
};

ssize_t write_at_most_100_ms(int fd, std::string_view bytes) {
  errno = EAGAIN;
  if (!has_room(fd)) return -1;
  const Mask mask(SIG_BLOCK, SIGTTOU);
  const Interrupter interrupter;
  return interrupter.made() ? ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), PIPE_BUF)) : -1;
}

ssize_t write_to_terminal(int fd, std::string_view bytes) {
  const Mask mask(SIG_BLOCK, SIGTTOU);
  return ::write(fd, bytes.data(), bytes.size());
}

int poll_time(Outlet::Clock::time_point until) {
  const auto left = std::chrono::ceil<milliseconds>(until - Outlet::Clock::now()).count();
  return int(std::clamp<long long>(left, 0, 3'600'000));
}

}  // namespace

Outlet Outlet::console(int fd) {
  Outlet outlet;
  outlet.fd_ = fd;
  struct stat status {};
  if (fstat(fd, &status) != 0) outlet.mode_ = Mode::gone;
  if (S_ISSOCK(status.st_mode)) outlet.mode_ = Mode::socket;
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return outlet;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  outlet.own_ = UniqueFd(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  // ENXIO: a pipe that nobody reads; but also /dev/tty, in a session that has no terminal.
  if (!outlet.own_)
    outlet.mode_ = errno == ENXIO && S_ISFIFO(status.st_mode) ? Mode::gone : Mode::blocking;
  else if (S_ISCHR(status.st_mode))
    outlet.mode_ = Mode::terminal;
  return outlet;
}

Outlet Outlet::file(UniqueFd file) {
  Outlet outlet;
  outlet.own_ = std::move(file);
  return outlet;
}

void Outlet::say(std::string_view text) {
  if (closed()) return;
  waiting_ += text;
  step();
}

bool Outlet::offer(std::string_view text) {
  step();
  if (pending() || closed()) return false;
  waiting_ = text;
  if (step() > 0 || !pending()) return !closed();
  waiting_.clear();
  return false;
}

std::size_t Outlet::step() {
  std::size_t taken = 0;
  while (pending()) {
    const ssize_t count = put(std::string_view(waiting_).substr(written_));
    if (count <= 0) {
      note(count < 0 ? int(-count) : EAGAIN);
      break;
    }
    error_ = 0;
    taken += std::size_t(count);
    written_ += std::size_t(count);
    if (written_ < waiting_.size()) continue;
    waiting_.clear();
    written_ = 0;
  }
  return taken;
}

bool Outlet::wait(int fd, Clock::time_point deadline, bool while_pending) {
  for (;;) {
    step();
    if (while_pending && !pending()) return false;
    const bool rests = pending() && rests_until_ > Clock::now();
    pollfd watched[] = {{.fd = fd, .events = POLLIN, .revents = 0},
                        {.fd = pending() && !rests ? this->fd() : -1, .events = POLLOUT, .revents = 0}};
    poll(watched, 2, poll_time(rests ? std::min(deadline, rests_until_) : deadline));
    if (watched[0].revents != 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

bool Outlet::flush(Clock::time_point deadline, int stop_fd) {
  wait(stop_fd, deadline, true);
  return !pending() && error_ == 0;
}

// Bytes taken, or -errno; -EAGAIN: later.
ssize_t Outlet::put(std::string_view bytes) const {
  if (mode_ == Mode::gone) return -EPIPE;
  ssize_t count = -1;
  if (mode_ == Mode::socket)
    count = send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  else if (mode_ == Mode::blocking)
    count = write_at_most_100_ms(fd_, bytes);
  else if (mode_ == Mode::terminal)
    count = write_to_terminal(fd(), bytes);
  else
    count = ::write(fd(), bytes.data(), bytes.size());
  if (count >= 0) return count;
  return errno == EINTR || errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

void Outlet::note(int error) {
  if (error == EAGAIN) {
    // What poll() believes to be room is none: it would not wait.
    if (has_room(fd())) rests_until_ = Clock::now() + kTerminalRest;
    return;
  }
  error_ = error;
  if (disk_is_full(error)) {
    rests_until_ = Clock::now() + kDiskRest;
    return;
  }
  closed_ = true;
  waiting_.clear();
  written_ = 0;
}

void tell(int fd, std::string_view text) {
  Outlet outlet = Outlet::console(fd);
  outlet.say(text);
  outlet.flush(Outlet::Clock::now() + kPatience);
}

}  // namespace lockstep::base
