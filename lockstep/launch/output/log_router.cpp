#include "lockstep/launch/output/log_router.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/launch/output/log_loop.h"
#include "lockstep/launch/workers/burial.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kMostCapacity = 1 << 20;
constexpr int kLeastCapacity = 64 << 10;
// All pipes of a user count against fs.pipe-user-pages-soft, by default 64 MiB.
constexpr int kCapacityOfAll = 16 << 20;

// Whether `fd` became readable, or hung up, in time. Where it cannot be watched, that is not known.
bool await(EventLoop& loop, int fd, std::chrono::milliseconds at_most, const std::function<bool()>& stopped) {
  bool readable = false;
  EventLoop::Handle watch;
  try {
    watch = loop.watch(fd, [&] { readable = true; });
  } catch (const Error&) {  // a job does not fail for the end of its output; finish() and filed() tell
    return false;
  }
  loop.run_until([&] { return readable || stopped(); }, Clock::now() + at_most);
  return readable;
}

base::UniqueFd make_pipe(base::UniqueFd& writer, int capacity) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("launcher: pipe");
  base::UniqueFd reader(ends[0]);
  writer = base::UniqueFd(ends[1]);
  // The worker's end waits, ours does not: each has flags of its own.
  if (fcntl(reader.get(), F_SETFL, O_NONBLOCK) != 0) throw_errno("launcher: pipe");
  fcntl(reader.get(), F_SETPIPE_SZ, capacity);  // where it is not allowed, the pipe is smaller
  return reader;
}

void close_all_but(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned next = 3;
  for (const int fd : kept) {
    if (fd < int(next)) continue;
    if (unsigned(fd) > next && syscall(SYS_close_range, next, unsigned(fd) - 1, 0U) != 0) _exit(1);
    next = unsigned(fd) + 1;
  }
  if (syscall(SYS_close_range, next, ~0U, 0U) != 0) _exit(1);
}

// Nothing of the agent may be kept open, above all not the write ends of the pipes.
void leave_the_agent(const LogLoop& loop, bool uses_stdout, int control) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || (!uses_stdout && dup2(null, STDOUT_FILENO) < 0)) _exit(1);
  std::vector<int> kept = loop.descriptors();
  kept.push_back(control);
  close_all_but(std::move(kept));
}

[[noreturn]] void route(LogLoop& loop, bool uses_stdout, int control) {
  // A session of its own: what ends the agent's process group does not reach it.
  setsid();
  prctl(PR_SET_NAME, "lockstep-logs");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  try {
    loop.attach_consoles();
    leave_the_agent(loop, uses_stdout, control);
    _exit(loop.run(control) ? 0 : 1);
  } catch (...) {
    _exit(1);
  }
}

}  // namespace

LogRouter::LogRouter(const std::vector<LogStream>& streams) : streams_(streams), writers_(streams.size()) {
  const int share = kCapacityOfAll / int(std::max<std::size_t>(1, streams.size()));
  for (base::UniqueFd& writer : writers_)
    readers_.push_back(make_pipe(writer, std::clamp(share, kLeastCapacity, kMostCapacity)));
  start(Files::anew);
}

void LogRouter::start(Files files) {
  std::vector<base::UniqueFd> pipes;
  for (const base::UniqueFd& reader : readers_) {
    pipes.emplace_back(fcntl(reader.get(), F_DUPFD_CLOEXEC, 0));
    if (!pipes.back()) throw_errno("launcher: dup");
  }
  LogLoop loop(streams_, std::move(pipes), files);
  const bool uses_stdout = std::any_of(streams_.begin(), streams_.end(),
                                       [](const LogStream& stream) { return stream.console == STDOUT_FILENO; });
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw_errno("launcher: socketpair");
  control_ = base::UniqueFd(ends[0]);
  const base::UniqueFd router_end(ends[1]);

  // A Ctrl-C between fork and its being ignored would end the router.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  pid_ = fork();
  if (pid_ == 0) route(loop, uses_stdout, router_end.get());
  const int fork_error = errno;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  errno = fork_error;
  if (pid_ < 0) throw_errno("launcher: cannot start the log router");
  pidfd_ = base::UniqueFd(int(syscall(SYS_pidfd_open, pid_, 0)));
  if (pidfd_) return;
  const int error = errno;
  kill(pid_, SIGKILL);
  take_status(kDeathWait);
  errno = error;
  throw_errno("launcher: pidfd_open");
}

LogRouter::~LogRouter() {
  try {
    finish(std::chrono::milliseconds(500));
  } catch (const Error&) {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    take_status(kDeathWait);
  }
}

bool LogRouter::has_ended() const {
  pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  return poll(&ended, 1, 0) == 1;
}

std::optional<int> LogRouter::take_status(std::chrono::milliseconds at_most) {
  const std::optional<int> status = bury(pid_, at_most);
  if (status) pid_ = -1;
  return status;
}

// No signal counts here.
void LogRouter::await_files(EventLoop& loop) {
  // A router that was killed by hand answers by having ended.
  send(control_.get(), "F", 1, MSG_NOSIGNAL);
  char word = 0;
  filed_ = await(loop, control_.get(), kFiling, [] { return false; }) && recv(control_.get(), &word, 1, 0) == 1;
}

bool LogRouter::finish(EventLoop& loop, std::chrono::milliseconds deadline, const std::function<bool()>& stopped) {
  if (outcome_) return *outcome_;
  writers_.clear();
  const bool died = has_ended();
  if (died) {
    take_status(kDeathWait);
    try {
      start(Files::go_on);
    } catch (const Error&) {  // what the first one died of; filed() tells
      outcome_ = false;
      return false;
    }
  }
  await_files(loop);
  readers_.clear();
  if (!filed_ || !await(loop, pidfd_.get(), deadline, stopped)) {
    kill(pid_, SIGKILL);
    await(loop, pidfd_.get(), kDeathWait, [] { return false; });
  }
  const std::optional<int> status = take_status(milliseconds(0));
  outcome_ = !died && status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
  return *outcome_;
}

bool LogRouter::finish(std::chrono::milliseconds deadline) {
  if (outcome_) return *outcome_;
  writers_.clear();  // a destructor may be here for want of descriptors
  base::Outlet nothing_to_say;
  EventLoop loop(nothing_to_say);
  return finish(loop, deadline, [] { return false; });
}

}  // namespace lockstep::launch
