#include "tests/support/disturbed_calls.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>

namespace lockstep::support {
namespace {

constexpr long kMarker = SYS_getppid;  // before and after the body
constexpr unsigned kDeadline = 60;     // seconds

#ifdef __x86_64__

bool is_of(CallKind kind, long number) {
  constexpr long kOfFiles[] = {
      SYS_open,       SYS_openat,   SYS_read,       SYS_pread64,   SYS_write,     SYS_pwrite64, SYS_writev,
      SYS_close,      SYS_fsync,    SYS_fdatasync,  SYS_ftruncate, SYS_fallocate, SYS_rename,   SYS_renameat,
      SYS_renameat2,  SYS_mkdir,    SYS_mkdirat,    SYS_rmdir,     SYS_unlink,    SYS_unlinkat, SYS_symlink,
      SYS_symlinkat,  SYS_readlink, SYS_readlinkat, SYS_flock,     SYS_stat,      SYS_fstat,    SYS_lstat,
      SYS_newfstatat, SYS_statx,    SYS_getdents64};
  return kind == CallKind::any || std::ranges::find(kOfFiles, number) != std::end(kOfFiles);
}

// Moves the child to its next stop; false when it has ended.
bool go_on(pid_t child, int& status, int signal = 0) {
  return ptrace(PTRACE_SYSCALL, child, 0, signal) == 0 && waitpid(child, &status, 0) == child && WIFSTOPPED(status);
}

void fail_call(pid_t child, int error, int& status) {
  user_regs_struct registers{};
  ptrace(PTRACE_GETREGS, child, 0, &registers);
  registers.orig_rax = static_cast<unsigned long long>(-1);
  ptrace(PTRACE_SETREGS, child, 0, &registers);
  if (!go_on(child, status)) return;
  ptrace(PTRACE_GETREGS, child, 0, &registers);
  registers.rax = static_cast<unsigned long long>(-static_cast<long long>(error));
  ptrace(PTRACE_SETREGS, child, 0, &registers);
}

// From the first marker on; the status is that of the child's last stop, or its end.
void follow(pid_t child, CallKind kind, int count, int error, Disturbed& outcome, int& status) {
  bool within = false, enters = true;
  for (int signal = 0; go_on(child, status, signal);) {
    const bool of_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
    signal = of_call ? 0 : WSTOPSIG(status);
    if (!of_call) continue;
    enters = !enters;
    if (enters) continue;  // that was the way out of a call
    user_regs_struct registers{};
    ptrace(PTRACE_GETREGS, child, 0, &registers);
    const long number = long(registers.orig_rax);
    if (number == kMarker) {
      within = !within;
      continue;
    }
    if (!within || outcome.reached || !is_of(kind, number) || --count > 0) continue;
    outcome.reached = true;
    outcome.number = number;
    if (error == 0) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return;
    }
    fail_call(child, error, status);
    enters = true;
  }
}

#endif

}  // namespace

Disturbed with_disturbed_call(CallKind kind, int count, int error, const std::function<int()>& body) {
#ifdef __x86_64__
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(kDeadline);
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) _exit(99);
    raise(SIGSTOP);
    syscall(kMarker);
    const int code = body();
    syscall(kMarker);
    _exit(code);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
      ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) != 0)
    throw std::runtime_error("a child's system calls cannot be watched here");
  Disturbed outcome;
  follow(child, kind, count, error, outcome, status);
  outcome.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return outcome;
#else
  throw std::runtime_error("system calls are disturbed on x86-64 only");
#endif
}

}  // namespace lockstep::support
