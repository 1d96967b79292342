#include "lockstep/rendezvous/spawn.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/message.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::rendezvous {
namespace {

using base::UniqueFd;
using std::chrono::milliseconds;

// Tells a program that starts anew which call it is in, as what, and where its report goes: "CALL RANK DESCRIPTOR".
constexpr const char* kCallVariable = "LOCKSTEP_SPAWN";
// Who saw another rank fail may be seen to end first.
constexpr milliseconds kForTheCause{1'000};
constexpr std::size_t kMostWords = 4'000;  // of a report: with its mark less than a pipe takes at once

// How body ended: the first byte of a report, the rest is the message.
enum Mark : char { kDone = 'd', kFailed = 'f', kUsage = 'u', kAborted = 'a' };

int calls = 0;  // of spawn() in this process

struct BadEnd {
  int rank = 0;
  char mark = kFailed;
  std::string words;
};

struct Child {
  pid_t pid = -1;
  UniqueFd pidfd;   // readable when it has ended
  UniqueFd report;  // read end
  bool running = true;
};

int free_loopback_port() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::bind(socket.get(), any, size) != 0 || ::getsockname(socket.get(), any, &size) != 0)
    throw_errno("spawn: a free port on 127.0.0.1");
  return ntohs(address.sin_port);
}

// No other call has had it, of whatever process.
std::string new_run_id() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) throw_errno("spawn: getrandom");
  std::ostringstream text;
  text << "spawn-" << std::hex << number;
  return text.str();
}

using Variables = std::map<std::string, std::string>;

Variables variables_of_all(int processes) {
  const std::string count = std::to_string(processes);
  return {{"WORLD_SIZE", count},
          {"LOCAL_WORLD_SIZE", count},
          {"GROUP_RANK", "0"},
          {"GROUP_WORLD_SIZE", "1"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(free_loopback_port())},
          {"TORCHELASTIC_RUN_ID", new_run_id()},
          {"TORCHELASTIC_RESTART_COUNT", "0"}};
}

std::size_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::size_t(std::distance(begin(tasks), end(tasks)));
}

// Strings for execve, made before the fork: between fork and exec of a process with threads no memory may be taken.
class Strings {
 public:
  explicit Strings(std::vector<std::string> words) : words_(std::move(words)) {
    for (std::string& word : words_) pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
  }
  Strings(const Strings&) = delete;
  char* const* data() { return pointers_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> found;
  for (std::string word; std::getline(file, word, '\0');) found.push_back(word);
  if (found.empty()) throw Error("spawn: /proc/self/cmdline does not tell this program's arguments");
  return found;
}

std::vector<std::string> environment_with(const Variables& more) {
  std::vector<std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!more.contains(std::string(*entry, std::strcspn(*entry, "=")))) found.emplace_back(*entry);
  for (const auto& [name, value] : more) found.push_back(name + "=" + value);
  return found;
}

[[noreturn]] void run_and_end(const std::function<void(int)>& body, int rank, int report) {
  std::string words(1, char(kDone));
  try {
    body(rank);
  } catch (const GroupAborted& error) {
    words = char(kAborted) + base::line_of(error.what());
  } catch (const UsageError& error) {
    words = char(kUsage) + base::line_of(error.what());
  } catch (const std::exception& error) {
    words = char(kFailed) + base::line_of(error.what());
  } catch (...) {
    words = char(kFailed) + std::string("an exception that is no std::exception");
  }
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  const bool done = words[0] == kDone;
  words.resize(std::min(words.size(), kMostWords));
  // Who cannot report has not ended well.
  const bool told = ::write(report, words.data(), words.size()) == ssize_t(words.size());
  ::_exit(told && done ? kExitDone : kExitFailure);
}

// In a child: dies with the thread that made it, which may be gone already.
void stay_only_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExitFailure);
}

class Processes {
 public:
  Processes() = default;
  Processes(const Processes&) = delete;
  // Nobody is left, whatever happened.
  ~Processes() {
    signal_all(SIGKILL);
    for (Child& child : children_)
      if (child.running) ::waitpid(child.pid, nullptr, 0);
  }

  void start(const std::function<void(int)>& body, int rank, const Variables& variables, bool anew);
  /// Waits for all, or for the first failure and what must follow it.
  std::optional<BadEnd> wait(milliseconds grace);

 private:
  using Clock = std::chrono::steady_clock;

  void signal_all(int number) {
    for (Child& child : children_)
      if (child.running) ::syscall(SYS_pidfd_send_signal, child.pidfd.get(), number, nullptr, 0);
  }
  bool any_runs() const {
    return std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.running; });
  }
  /// Reaps those that ended until `until`, or until `enough` has been seen; failures go behind those that are known.
  void reap(std::optional<Clock::time_point> until, const std::function<bool()>& enough);
  std::optional<BadEnd> end_of(int rank);

  std::vector<Child> children_;
  std::vector<BadEnd> failures_;
};

void Processes::start(const std::function<void(int)>& body, int rank, const Variables& variables, bool anew) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("spawn: pipe");
  Child child;
  child.report = UniqueFd(ends[0]);
  const UniqueFd out(ends[1]);
  Variables more = variables;
  more["RANK"] = more["LOCAL_RANK"] = std::to_string(rank);
  if (anew) more[kCallVariable] = std::to_string(calls) + " " + std::to_string(rank) + " " + std::to_string(out.get());
  Strings arguments(anew ? own_arguments() : std::vector<std::string>());
  Strings environment(anew ? environment_with(more) : std::vector<std::string>());
  const pid_t parent = ::getpid();
  std::cout.flush();  // what waits in a buffer would be written twice
  std::fflush(nullptr);
  child.pid = ::fork();
  if (child.pid < 0) throw_errno("spawn: fork");
  if (child.pid == 0) {
    stay_only_with(parent);
    if (anew) {
      ::fcntl(out.get(), F_SETFD, 0);
      ::execve("/proc/self/exe", arguments.data(), environment.data());
      ::_exit(kExitFailure);
    }
    for (const auto& [name, value] : more) ::setenv(name.c_str(), value.c_str(), 1);
    run_and_end(body, rank, out.get());
  }
  child.pidfd = UniqueFd(int(::syscall(SYS_pidfd_open, child.pid, 0)));
  children_.push_back(std::move(child));
  if (!children_.back().pidfd) throw_errno("spawn: pidfd_open");
}

// What the end of a process was; nothing when it had done its work.
std::optional<BadEnd> Processes::end_of(int rank) {
  Child& child = children_[std::size_t(rank)];
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  child.running = false;
  std::string report(kMostWords, '\0');
  ::fcntl(child.report.get(), F_SETFL, O_NONBLOCK);  // a process that it started may hold the other end
  report.resize(std::size_t(std::max<ssize_t>(0, ::read(child.report.get(), report.data(), report.size()))));
  if (WIFSIGNALED(status))
    return BadEnd{rank, kFailed, std::string("killed by SIG") + ::sigabbrev_np(WTERMSIG(status))};
  if (report.empty())
    return BadEnd{rank, kFailed,
                  "ended with exit code " + std::to_string(WEXITSTATUS(status)) + " before its function returned"};
  if (report[0] == kDone) return std::nullopt;
  return BadEnd{rank, report[0], report.substr(1)};
}

void Processes::reap(std::optional<Clock::time_point> until, const std::function<bool()>& enough) {
  while (any_runs() && !enough()) {
    std::vector<pollfd> waits;
    for (const Child& child : children_) waits.push_back({child.running ? child.pidfd.get() : -1, POLLIN, 0});
    int left = -1;
    if (until) left = int(std::max<std::int64_t>(0, std::chrono::ceil<milliseconds>(*until - Clock::now()).count()));
    const int ready = ::poll(waits.data(), waits.size(), left);
    if (ready < 0 && errno != EINTR) throw_errno("spawn: poll");
    if (ready == 0) return;
    for (std::size_t rank = 0; ready > 0 && rank < waits.size(); ++rank)
      if (waits[rank].revents != 0)
        if (std::optional<BadEnd> failed = end_of(int(rank))) failures_.push_back(std::move(*failed));
  }
}

std::optional<BadEnd> Processes::wait(milliseconds grace) {
  const auto cause = [this] {
    return std::find_if(failures_.begin(), failures_.end(), [](const BadEnd& one) { return one.mark != kAborted; });
  };
  reap(std::nullopt, [&] { return !failures_.empty(); });
  if (failures_.empty()) return std::nullopt;
  reap(Clock::now() + kForTheCause, [&] { return cause() != failures_.end(); });
  const auto first = cause();
  const BadEnd found = first != failures_.end() ? *first : failures_.front();
  signal_all(SIGTERM);
  reap(Clock::now() + grace, [] { return false; });
  return found;  // the destructor kills who is left
}

// Whether this process was started anew for this call; runs body then and ends.
void run_if_called(const std::function<void(int)>& body) {
  const char* const text = std::getenv(kCallVariable);
  if (text == nullptr) return;
  int call = 0, rank = 0, report = -1;
  if (!(std::istringstream(text) >> call >> rank >> report))
    throw UsageError(std::string("spawn: ") + kCallVariable + "=" + text +
                     " is not of a process that spawn() started: unset it");
  if (call != calls) return;
  ::unsetenv(kCallVariable);
  ::fcntl(report, F_SETFD, FD_CLOEXEC);
  run_and_end(body, rank, report);
}

}  // namespace

void spawn(const std::function<void(int rank)>& body, int processes, const SpawnOptions& options) {
  if (processes < 1) throw UsageError("spawn: " + std::to_string(processes) + " processes: at least 1 is needed");
  ++calls;
  run_if_called(body);
  if (std::getenv(kCallVariable) != nullptr) return;  // an earlier call than that which this process is for
  if (const char* const rank = std::getenv("RANK"); rank != nullptr && *rank != '\0')
    throw UsageError(std::string("spawn: this process is rank ") + rank +
                     " of a job already (RANK): start the program without a launcher, or leave spawn() out");
  const Variables variables = variables_of_all(processes);
  const bool anew = threads_of_this_process() > 1;
  std::optional<BadEnd> failed;
  {
    Processes started;
    for (int rank = 0; rank < processes; ++rank) started.start(body, rank, variables, anew);
    failed = started.wait(options.grace);
  }
  if (!failed) return;
  const std::string words = "spawn: rank " + std::to_string(failed->rank) + ": " + failed->words;
  if (failed->mark == kUsage) throw UsageError(words);
  throw Error(words);
}

}  // namespace lockstep::rendezvous
