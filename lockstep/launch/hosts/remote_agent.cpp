#include "lockstep/launch/hosts/remote_agent.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

struct HomePipe {
  HomePipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("launcher: pipe");
    out = base::UniqueFd(ends[0]);
    in = base::UniqueFd(ends[1]);
  }
  base::UniqueFd out, in;
};

[[noreturn]] void become_remote_shell(char* const* argv, const std::array<int, 3>& standard, const Signals& signals,
                                      const rlimit& descriptors, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  setsid();
  for (int i = 0; i < 3; ++i) dup2(standard[std::size_t(i)], i);
  signals.restore_for_worker();
  setrlimit(RLIMIT_NOFILE, &descriptors);
  execvp(argv[0], argv);
  const int error = errno;
  const char* const why = std::strerror(error);
  if (write(STDERR_FILENO, argv[0], std::strlen(argv[0])) < 0 || write(STDERR_FILENO, ": ", 2) < 0 ||
      write(STDERR_FILENO, why, std::strlen(why)) < 0)
    _exit(126);
  _exit(error == ENOENT ? 127 : 126);
}

}  // namespace

RemoteAgent::RemoteAgent(EventLoop& loop, const std::vector<std::string>& command, const Signals& signals,
                         const rlimit& descriptors, Events events)
    : events_(std::move(events)) {
  HomePipe input, output, errors;
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw_errno("launcher: fork");
  if (pid_ == 0)
    become_remote_shell(argv.data(), {input.out.get(), output.in.get(), errors.in.get()}, signals, descriptors, parent);
  pidfd_ = base::UniqueFd(int(syscall(SYS_pidfd_open, pid_, 0)));
  input_ = std::move(input.in);
  streams_[0].fd = std::move(output.out);
  streams_[1].fd = std::move(errors.out);
  try {
    watch(loop);
  } catch (...) {
    end_now();
    throw;
  }
}

RemoteAgent::~RemoteAgent() {
  if (!over()) end_now();
}

// It may not be at the head of its session yet.
void RemoteAgent::end_now() {
  kill();
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void RemoteAgent::watch(EventLoop& loop) {
  if (!pidfd_) throw_errno("launcher: pidfd_open");
  for (const base::UniqueFd* fd : {&input_, &streams_[0].fd, &streams_[1].fd}) fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  end_watch_ = loop.watch(pidfd_.get(), [this] { finish(); });
  for (int i = 0; i < 2; ++i)
    streams_[std::size_t(i)].watch = loop.watch(streams_[std::size_t(i)].fd.get(), [this, i] { read(i); });
}

void RemoteAgent::tell(const std::string& line) {
  if (input_ && write(input_.get(), line.data(), line.size()) < 0 && errno == EPIPE) input_ = {};
}

void RemoteAgent::kill() {
  if (!over()) ::kill(-pid_, SIGKILL);
}

// Whether more may wait. Whole lines go on at once.
bool RemoteAgent::read(int number) {
  Stream& stream = streams_[std::size_t(number)];
  std::array<char, 64 * 1024> bytes;
  const ssize_t count = ::read(stream.fd.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
  if (count <= 0) {
    stream.watch = {};
    return false;
  }
  stream.line.append(bytes.data(), std::size_t(count));
  std::size_t whole = stream.line.rfind('\n') + 1;
  if (whole == 0 && stream.line.size() > kLongestHomeLine) {
    stream.line += '\n';
    whole = stream.line.size();
  }
  if (whole > 0) events_.output(number + 1, stream.line.substr(0, whole));
  stream.line.erase(0, whole);
  return true;
}

// What it has written is there; who holds its pipes still (a connection that ssh shares) has nothing to say.
void RemoteAgent::finish() {
  end_watch_ = {};
  int status = 0;
  waitpid(pid_, &status, 0);
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  for (int i = 0; i < 2; ++i) {
    while (streams_[std::size_t(i)].fd && read(i)) continue;
    Stream& stream = streams_[std::size_t(i)];
    if (!stream.line.empty()) events_.output(i + 1, std::exchange(stream.line, "") + "\n");
    stream.watch = {};
  }
  input_ = {};
  events_.ended(*code_);
}

}  // namespace lockstep::launch
