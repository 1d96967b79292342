#include "lockstep/launch/agent.h"

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/base/segment.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/machine.h"
#include "lockstep/launch/reaper.h"
#include "lockstep/launch/signals.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/launch/verdict.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long a worker that has told its failure may take to print it and end by itself.
constexpr milliseconds kLastWords{2'000};
// After SIGKILL only a process stuck in the kernel lives on.
constexpr milliseconds kKillWait{5'000};

struct Worker {
  Process process;
  bool ended = true;       // the worker itself; true as well before it is started
  bool group_gone = true;  // and everything in its process group
};

// 'T' or 't' in /proc/<pid>/stat: a stopped process would sleep through SIGTERM.
bool is_stopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  return text[name_end + 2] == 'T' || text[name_end + 2] == 't';
}

class Job {
 public:
  explicit Job(const Plan& plan);
  ~Job() { kill_everything(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int run();

 private:
  // running -> (last_words ->) ending -> killing; all but the first have a deadline.
  enum class Stage { running, last_words, ending, killing };
  static constexpr std::uint64_t kSignals = ~std::uint64_t(0);

  void start();
  void refuse(const std::string& program, int error);
  void wait();
  void on_signals();
  void on_worker_end(int rank);
  void on_failure(const End& end);
  void on_deadline();
  void conclude();
  void begin_end(int signal);
  void kill_everything();
  void reap_group(Worker& worker);

  void enter(Stage stage, milliseconds deadline);
  int milliseconds_left() const;
  void watch(int fd, std::uint64_t what);
  bool all_ended() const { return std::ranges::all_of(workers_, &Worker::ended); }
  bool all_gone() const { return std::ranges::all_of(workers_, &Worker::group_gone); }

  const Plan& plan_;
  base::Segment segment_;
  Signals signals_;
  base::UniqueFd epoll_;
  Reaper reaper_;
  std::vector<Worker> workers_;
  std::vector<End> ends_;           // in order of time
  std::optional<Failure> told_;     // what a worker wrote into the error slot
  std::optional<Verdict> verdict_;  // once the first failure is known
  Stage stage_ = Stage::running;
  Clock::time_point deadline_{};
  int code_ = 0;
};

void print(const std::string& text) {
  // One write, so that the lines stay together among those of the workers.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

// Sends to the whole group, or at least to a worker that has left its own.
void signal_group(const Worker& worker, int signal) {
  if (worker.group_gone) return;
  if (kill(-worker.process.pid, signal) != 0 && !worker.ended)
    syscall(SYS_pidfd_send_signal, worker.process.pidfd.get(), signal, nullptr, 0);
}

Job::Job(const Plan& plan)
    : plan_(plan),
      segment_(base::Segment::create(plan.workers)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      workers_(std::size_t(plan.workers)) {
  if (!epoll_) throw_errno("launcher: epoll_create1");
  // Orphans of the workers become children of the agent, which thus learns of their end.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  watch(signals_.fd(), kSignals);
}

int Job::run() {
  start();
  while (!all_gone()) {
    wait();
    // What is left in the groups of workers that are all done has no purpose any more.
    if (stage_ == Stage::running && all_ended()) begin_end(SIGTERM);
  }
  roll_forward(segment_.control());
  if (verdict_) print(report_followers(*verdict_, ends_));
  return code_;
}

void Job::start() {
  const Environment inherited = this_environment();
  const Attempt attempt{.run_id = random_id(),
                        .master_port = free_port(),
                        .segment_path = segment_.path(),
                        .cores = base::usable_cores()};
  const SpawnContext context{.signal_mask = signals_.mask_before(),
                             .reaper_pipe = reaper_.pipe(),
                             .stdin_is_terminal = isatty(STDIN_FILENO) == 1};
  const char* path = std::getenv("PATH");
  const std::string program = find_program(plan_.command.front(), path != nullptr ? path : "/usr/bin:/bin");
  if (program.empty()) return refuse(plan_.command.front(), ENOENT);
  for (int rank = 0; rank < plan_.workers; ++rank) {
    Worker& worker = workers_[std::size_t(rank)];
    ExecFailure failure;
    worker.process =
        spawn(program, plan_.command, worker_environment(inherited, plan_, attempt, rank), context, failure);
    if (failure.error != 0) return refuse(program, failure.error);
    worker.ended = worker.group_gone = false;
    watch(worker.process.pidfd.get(), std::uint64_t(rank));
  }
}

void Job::refuse(const std::string& program, int error) {
  code_ = error == ENOENT || error == ENOTDIR ? kExitNotFound : kExitNotExecutable;
  std::string text = "lockstep: cannot execute '" + program + "': " + std::strerror(error);
  if (error == ENOENT && program.find('/') == std::string::npos)
    text += access(program.c_str(), F_OK) == 0 ? " in PATH (write ./" + program + " for the one in this folder)"
                                               : " in PATH";
  else if (error == ENOENT && access(program.c_str(), F_OK) == 0)
    text += " (the interpreter in its first line is missing)";
  print(text + "\n");
  begin_end(SIGTERM);
}

void Job::wait() {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), int(events.size()), milliseconds_left());
  if (count < 0 && errno != EINTR) throw_errno("launcher: epoll_wait");
  // Events come in the order in which they happened.
  for (int i = 0; i < count; ++i) {
    const std::uint64_t what = events[std::size_t(i)].data.u64;
    what == kSignals ? on_signals() : on_worker_end(int(what));
  }
  for (Worker& worker : workers_) reap_group(worker);
  if (stage_ != Stage::running && Clock::now() >= deadline_) on_deadline();
}

void Job::on_signals() {
  while (const int signal = signals_.next()) {
    if (signal == SIGCHLD) continue;  // only to look after the groups again
    if (stage_ == Stage::last_words) conclude();
    if (stage_ != Stage::running) {
      kill_everything();
    } else {
      code_ = 128 + signal;
      begin_end(signal);
    }
  }
}

void Job::on_worker_end(int rank) {
  Worker& worker = workers_[std::size_t(rank)];
  siginfo_t info{};
  if (waitid(P_PID, id_t(worker.process.pid), &info, WEXITED | WNOHANG) != 0) throw_errno("launcher: waitid");
  if (info.si_pid == 0) return;
  End end{.rank = rank, .pid = worker.process.pid};
  (info.si_code == CLD_EXITED ? end.exit_code : end.signal) = info.si_status;
  worker.ended = true;
  worker.process.pidfd = base::UniqueFd();
  ends_.push_back(end);
  if (stage_ == Stage::running && end.failed())
    on_failure(end);
  else if (stage_ == Stage::last_words && told_->rank == rank)
    conclude();
}

void Job::on_failure(const End& end) {
  if (!raise_abort(segment_.control(), failure_of(end, whereabouts(segment_.control(), end.rank))))
    told_ = read_failure(segment_.control());
  // Ending a worker that has claimed the failure would cut off its message.
  if (first_failure(ends_, told_).still_running && plan_.grace > milliseconds(0))
    enter(Stage::last_words, std::min(plan_.grace, kLastWords));
  else
    conclude();
}

void Job::conclude() {
  verdict_ = first_failure(ends_, told_);
  code_ = verdict_->code;
  print(report(*verdict_, whereabouts(segment_.control(), verdict_->end.rank), host_name()));
  begin_end(SIGTERM);
}

void Job::on_deadline() {
  if (stage_ == Stage::last_words) return conclude();
  if (stage_ == Stage::ending) return kill_everything();
  for (Worker& worker : workers_) {
    if (worker.group_gone) continue;
    print("lockstep: process group " + std::to_string(worker.process.pid) + " cannot be killed, left behind\n");
    worker.group_gone = true;
  }
}

void Job::begin_end(int signal) {
  enter(Stage::ending, plan_.grace);
  for (const Worker& worker : workers_) {
    if (!worker.ended && is_stopped(worker.process.pid)) {
      signal_group(worker, SIGKILL);
    } else {
      signal_group(worker, signal);
      signal_group(worker, SIGCONT);  // a stopped process deeper in the group wakes up to take the signal
    }
  }
}

void Job::kill_everything() {
  enter(Stage::killing, kKillWait);
  for (const Worker& worker : workers_) signal_group(worker, SIGKILL);
}

// Buries the orphans of an ended worker's group, and notes when nobody is left in it.
void Job::reap_group(Worker& worker) {
  if (!worker.ended || worker.group_gone) return;
  siginfo_t info{};
  do {
    info.si_pid = 0;
  } while (waitid(P_PGID, id_t(worker.process.pid), &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0);
  if (kill(-worker.process.pid, 0) == 0 || errno != ESRCH) return;
  worker.group_gone = true;
  reaper_.forget(worker.process.pid);
}

void Job::enter(Stage stage, milliseconds deadline) {
  stage_ = stage;
  deadline_ = Clock::now() + deadline;
}

int Job::milliseconds_left() const {
  if (stage_ == Stage::running) return -1;
  const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now()).count();
  return int(std::clamp<long long>(left, 0, 3'600'000));
}

void Job::watch(int fd, std::uint64_t what) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = what}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw_errno("launcher: epoll_ctl");
}

}  // namespace

int run_agent(const Plan& plan) { return Job(plan).run(); }

}  // namespace lockstep::launch
