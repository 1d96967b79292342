#include "lockstep/base/stack_on_request.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string_view>

namespace lockstep::base {
namespace {

constexpr int kMostFrames = 64;

// What templates are called may fill pages.
constexpr std::size_t kMostOfName = 160;

// Who is asked.
std::atomic<int> asked_rank{-1};
std::atomic<int> asked_thread{0};
std::atomic<bool> is_writing_stack{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler uses them");

// What has no room in it is left out.
class BoundedText {
 public:
  void clear() { size_ = 0; }
  void add(std::string_view text) {
    const std::size_t size = std::min(text.size(), bytes_.size() - size_);
    std::memcpy(bytes_.data() + size_, text.data(), size);
    size_ += size;
  }
  void add_number(std::uint64_t number, unsigned radix) {
    std::array<char, 20> digits{};
    std::size_t begin = digits.size();
    do {
      digits[--begin] = "0123456789abcdef"[number % radix];
      number /= radix;
    } while (number != 0);
    add(std::string_view(digits.data() + begin, digits.size() - begin));
  }
  std::string_view text() const { return {bytes_.data(), size_}; }

 private:
  std::array<char, 16384> bytes_{};
  std::size_t size_ = 0;
};

// Not on the stack, of which a thread may have little left.
BoundedText stack_text;

int own_thread() { return int(syscall(SYS_gettid)); }

// "  #3 libtorch_cpu.so+0x1a2b3c _ZN2at...": what addr2line and c++filt make lines and names of.
void add_frame(BoundedText& text, int number, std::uintptr_t address) {
  text.add("  #");
  text.add_number(std::uint64_t(number), 10);
  Dl_info info{};
  void* found = nullptr;
  if (dladdr1(reinterpret_cast<void*>(address), &info, &found, RTLD_DL_LINKMAP) == 0 || found == nullptr) {
    text.add(" 0x");
    text.add_number(address, 16);
    text.add("\n");
    return;
  }
  const std::string_view file = info.dli_fname == nullptr ? "?" : info.dli_fname;
  text.add(" ");
  text.add(file.substr(file.rfind('/') + 1));  // npos + 1 is 0
  text.add("+0x");
  text.add_number(address - static_cast<const link_map*>(found)->l_addr, 16);
  if (info.dli_sname != nullptr) {
    text.add(" ");
    text.add(std::string_view(info.dli_sname).substr(0, kMostOfName));
  }
  text.add("\n");
}

// A pipe that nobody reads and a file at its limit answer a write by a signal, too. It is pending, for the handler has
// all of them blocked, and would end a process behind it that has only been asked.
void take_back_signal(int error, const sigset_t& pending_before) {
  const int signal = error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
  if (signal == 0 || sigismember(&pending_before, signal) == 1) return;
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, signal);
  const timespec at_once{};
  sigtimedwait(&ours, nullptr, &at_once);
}

// As base::Outlet does, which makes strings: what is not taken at once is left out.
void put_at_once(std::string_view text) {
  struct stat status {};
  if (fstat(STDERR_FILENO, &status) != 0) return;
  const bool is_socket = S_ISSOCK(status.st_mode), may_wait = S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode);
  const int own = may_wait ? open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
  if (may_wait && own < 0) return;
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  while (!text.empty()) {
    const ssize_t taken = is_socket ? send(STDERR_FILENO, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                                    : ::write(may_wait ? own : STDERR_FILENO, text.data(), text.size());
    if (taken < 0) take_back_signal(errno, pending);
    if (taken <= 0) break;
    text.remove_prefix(std::size_t(taken));
  }
  if (own >= 0) close(own);
}

void write_stack(const ucontext_t& interrupted) {
  if (is_writing_stack.exchange(true)) return;
  std::array<void*, kMostFrames> frames{};
  const int count = backtrace(frames.data(), kMostFrames);
  const auto at = [&](int frame) { return reinterpret_cast<std::uintptr_t>(frames[std::size_t(frame)]); };
  // The first are the handler's own. A sanitizer may call it from elsewhere: then all are shown.
  const auto place = std::uintptr_t(interrupted.uc_mcontext.gregs[REG_RIP]);
  int first = 0;
  while (first < count && at(first) != place) ++first;
  if (first == count) first = 0;
  stack_text.clear();
  stack_text.add("lockstep: rank ");
  stack_text.add_number(std::uint64_t(std::max(0, asked_rank.load())), 10);
  stack_text.add(" (pid ");
  stack_text.add_number(std::uint64_t(getpid()), 10);
  stack_text.add(", thread ");
  stack_text.add_number(std::uint64_t(own_thread()), 10);
  stack_text.add(") is here, in the innermost function first:\n");
  // The others are where calls return to, which may be another line, or another function, than that of the call.
  for (int frame = first; frame < count; ++frame)
    add_frame(stack_text, frame - first, frame == first ? at(frame) : at(frame) - 1);
  put_at_once(stack_text.text());
  is_writing_stack = false;
}

// The kernel gives it to any thread. That of a forked child is none of those asked for; there is no such thread then.
void on_request(int signal, siginfo_t* from, void* interrupted) {
  const int error = errno;
  const int thread = asked_thread.load();
  const bool is_of_a_process = from->si_code == SI_USER, is_passed_on = from->si_code == SI_TKILL;
  if ((is_of_a_process || is_passed_on) && own_thread() == thread)
    write_stack(*static_cast<const ucontext_t*>(interrupted));
  else if (is_of_a_process)
    syscall(SYS_tgkill, getpid(), thread, signal);
  errno = error;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_request;
}

}  // namespace

bool write_stack_when_asked(int rank) {
  struct sigaction now {};
  if (sigaction(SIGURG, nullptr, &now) != 0) return false;
  const bool is_free = (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL;
  if (!is_free && !is_ours(now)) return false;
  asked_rank = rank;
  asked_thread = own_thread();
  if (!is_free) return true;
  // The first call loads what walks the stack, and takes memory for it.
  std::array<void*, 1> frame{};
  backtrace(frame.data(), 1);
  struct sigaction action {};
  action.sa_sigaction = on_request;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);  // SIGTTOU among them: a terminal with `stty tostop` does not stop the writer
  return sigaction(SIGURG, &action, nullptr) == 0;
}

bool writes_stack_when_asked() {
  struct sigaction now {};
  return sigaction(SIGURG, nullptr, &now) == 0 && is_ours(now);
}

void ask_for_stack(int pidfd) { syscall(SYS_pidfd_send_signal, pidfd, SIGURG, nullptr, 0); }

}  // namespace lockstep::base
