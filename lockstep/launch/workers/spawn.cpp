#include "lockstep/launch/workers/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Everything the child needs, made before the fork: between fork and exec only plain system calls
// happen, and nothing is written to memory, which is the agent's (vfork).
struct Launch {
  const char* program;
  char* const* arguments;
  char* const* environment;
  const SpawnContext& context;
  pid_t agent;
  int status_pipe;
};

void write_int(int fd, int value) {
  while (write(fd, &value, sizeof value) < 0 && errno == EINTR) {
  }
}

[[noreturn]] void become_worker(const Launch& launch) {
  // A session of its own, as torchrun gives it: a background group of the terminal's session would
  // be stopped when it writes to a terminal with tostop.
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The agent may have died before the line above: then the signal never comes.
  if (getppid() != launch.agent) _exit(1);
  write_int(launch.context.reaper_pipe, getpid());
  launch.context.signals.restore_for_worker();
  setrlimit(RLIMIT_NOFILE, &launch.context.descriptors);
  // The cores were allowed when they were chosen; without them the worker is slower, and right.
  if (launch.context.cores != nullptr) sched_setaffinity(0, sizeof(cpu_set_t), launch.context.cores);
  // Who should read what is typed? Nobody, as it is not the workers' terminal.
  if (launch.context.stdin_is_terminal) {
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    if (null > STDIN_FILENO) close(null);
  }
  if (launch.context.stdout_fd >= 0) dup2(launch.context.stdout_fd, STDOUT_FILENO);
  if (launch.context.stderr_fd >= 0) dup2(launch.context.stderr_fd, STDERR_FILENO);
  // What the agent was started with is not meant for the workers; the status pipe closes at exec.
  syscall(SYS_close_range, 3U, ~0U, unsigned(CLOSE_RANGE_CLOEXEC));
  execve(launch.program, launch.arguments, launch.environment);
  write_int(launch.status_pipe, errno);
  _exit(127);
}

}  // namespace

std::optional<cpu_set_t> cores_of_worker(const Plan& plan, int local_rank) {
  if (std::size_t(local_rank) >= plan.worker_cores.size()) return {};
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : plan.worker_cores[std::size_t(local_rank)])
    if (core < CPU_SETSIZE) CPU_SET(core, &cores);
  if (CPU_COUNT(&cores) == 0) return {};
  return cores;
}

Process spawn(const std::string& program, const std::vector<std::string>& arguments, const Environment& environment,
              const SpawnContext& context, ExecFailure& failure) {
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("launcher: pipe");
  base::UniqueFd status(ends[0]);
  base::UniqueFd status_write(ends[1]);

  Process process;
  const Launch launch{program.c_str(), argv.data(), envp.data(), context, getpid(), status_write.get()};
  // Without a copy of the agent's page tables, which took most of the time: the child borrows its
  // memory until exec, and the agent sleeps meanwhile. It changes nothing there but errno.
  process.pid = vfork();
  if (process.pid == 0) become_worker(launch);
  if (process.pid < 0) throw_errno("launcher: cannot start a process");
  status_write = base::UniqueFd();

  // End of file says that exec has closed the pipe: the program runs.
  ssize_t got = 0;
  do {
    got = read(status.get(), &failure.error, sizeof failure.error);
  } while (got < 0 && errno == EINTR);
  if (got != ssize_t(sizeof failure.error)) {
    failure.error = 0;
    process.pidfd = base::UniqueFd(int(syscall(SYS_pidfd_open, process.pid, 0)));
    if (process.pidfd) return process;
    const int error = errno;
    kill(-process.pid, SIGKILL);
    waitpid(process.pid, nullptr, 0);
    errno = error;
    throw_errno("launcher: pidfd_open");
  }
  waitpid(process.pid, nullptr, 0);
  return process;
}

}  // namespace lockstep::launch
