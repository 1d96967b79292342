#include "tests/support/system_calls.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>

namespace lockstep::support {
namespace {

enum class State : int { starting, watching, refused };

// Shared by the watched thread and its watcher.
struct Watch {
  std::atomic<State> state = State::starting;
  int error = 0;
  std::array<int, 1024> calls{};
};

constexpr long kMarker = SYS_getppid;  // before and after the body
constexpr unsigned kDeadline = 60;     // seconds, for the whole body

bool is_entry(pid_t thread, long& number) {
  __ptrace_syscall_info info{};
  if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0) return false;
  if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return false;
  number = long(info.entry.nr);
  return true;
}

// Until the second marker. A stop that is no system call's passes its signal on.
void follow(pid_t thread, Watch& watch) {
  int markers = 0;
  for (int signal = 0; ptrace(PTRACE_SYSCALL, thread, 0, signal) == 0;) {
    int status = 0;
    if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status)) return;
    const bool of_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
    signal = of_call || status >> 16 != 0 ? 0 : WSTOPSIG(status);
    long number = 0;
    if (!of_call || !is_entry(thread, number)) continue;
    if (number == kMarker) {
      if (++markers == 2) break;
    } else if (markers == 1 && number >= 0 && number < long(watch.calls.size())) {
      ++watch.calls[std::size_t(number)];
    }
  }
  ptrace(PTRACE_DETACH, thread, 0, 0);
}

[[noreturn]] void watch_from_child(pid_t thread, Watch& watch) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(kDeadline);
  int status = 0;
  if (ptrace(PTRACE_SEIZE, thread, 0, PTRACE_O_TRACESYSGOOD) != 0 || ptrace(PTRACE_INTERRUPT, thread, 0, 0) != 0 ||
      waitpid(thread, &status, __WALL) != thread) {
    watch.error = errno;
    watch.state = State::refused;
    _exit(1);
  }
  watch.state = State::watching;
  follow(thread, watch);
  _exit(0);
}

}  // namespace

std::optional<std::map<long, int>> system_calls_of(const std::function<void()>& body) {
  void* const page = mmap(nullptr, sizeof(Watch), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return std::nullopt;
  Watch& watch = *new (page) Watch;
  const pid_t thread = gettid();
  const pid_t watcher = fork();
  if (watcher == 0) watch_from_child(thread, watch);
  prctl(PR_SET_PTRACER, watcher);
  while (watcher > 0 && watch.state == State::starting && waitpid(watcher, nullptr, WNOHANG) == 0) usleep(1000);
  std::optional<std::map<long, int>> found;
  if (watch.state == State::watching) {
    syscall(kMarker);
    body();
    syscall(kMarker);
    waitpid(watcher, nullptr, 0);
    found.emplace();
    for (std::size_t number = 0; number < watch.calls.size(); ++number)
      if (watch.calls[number] > 0) (*found)[long(number)] = watch.calls[number];
  } else {
    std::cout << "system calls cannot be watched here: " << std::strerror(watch.error) << std::endl;
  }
  munmap(page, sizeof(Watch));
  return found;
}

std::string to_string(const std::map<long, int>& calls) {
  static const std::map<long, std::string> names{{SYS_futex, "futex"},
                                                 {SYS_poll, "poll"},
                                                 {SYS_madvise, "madvise"},
                                                 {SYS_mmap, "mmap"},
                                                 {SYS_munmap, "munmap"},
                                                 {SYS_brk, "brk"},
                                                 {SYS_sched_yield, "sched_yield"},
                                                 {SYS_mprotect, "mprotect"},
                                                 {SYS_nanosleep, "nanosleep"},
                                                 {SYS_clock_nanosleep, "clock_nanosleep"}};
  std::string text;
  for (const auto& [number, count] : calls) {
    const auto name = names.find(number);
    text += (text.empty() ? "" : ", ") + (name == names.end() ? std::to_string(number) : name->second) + " " +
            std::to_string(count);
  }
  return text.empty() ? "none" : text;
}

}  // namespace lockstep::support
