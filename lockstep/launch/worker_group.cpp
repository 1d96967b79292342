#include "lockstep/launch/worker_group.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/agent.h"
#include "lockstep/launch/error_file.h"
#include "lockstep/launch/machine.h"
#include "lockstep/launch/policy.h"
#include "lockstep/launch/process_state.h"
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

// Sends to the whole group, or at least to a worker that has left its own.
void signal_group(const Worker& worker, int signal) {
  if (worker.group_gone) return;
  if (kill(-worker.process.pid, signal) != 0 && !worker.ended)
    syscall(SYS_pidfd_send_signal, worker.process.pidfd.get(), signal, nullptr, 0);
}

class WorkerGroup {
 public:
  WorkerGroup(const GroupContext& context, const Attempt& attempt);
  ~WorkerGroup() { kill_everything(); }
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  GroupResult run();

 private:
  // running -> (last_words ->) ending -> killing; all but the first have a deadline.
  enum class Stage { running, last_words, ending, killing };
  static constexpr std::uint64_t kSignals = ~std::uint64_t(0);
  static constexpr std::uint64_t kRouter = kSignals - 1;

  void start();
  void start_worker(int rank, const std::string& program, const Environment& inherited);
  void refuse(const std::string& program, int error);
  void refuse_script(const std::string& script, int error);
  void wait();
  void on_signals();
  void on_worker_end(int rank);
  void on_router_end();
  void on_failure(const End& end);
  void on_deadline();
  void conclude();
  void begin_end(int signal);
  void kill_everything();
  void bury_orphans();
  void look_for_end_of_group(Worker& worker);

  void enter(Stage stage, milliseconds deadline);
  void say(const std::string& text) { context_.console.say(text); }
  void watch(int fd, std::uint64_t what);
  std::vector<Recorded> recorded() const;
  bool somebody_is_dying() const;
  bool all_ended() const { return std::ranges::all_of(workers_, &Worker::ended); }
  bool all_gone() const { return std::ranges::all_of(workers_, &Worker::group_gone); }

  const GroupContext& context_;
  const Attempt& attempt_;
  base::UniqueFd epoll_;
  std::vector<Worker> workers_;
  std::vector<ErrorFile> error_files_;
  std::optional<Failure> told_;  // what a worker wrote into the error slot
  bool orphans_to_bury_ = true;
  Stage stage_ = Stage::running;
  Clock::time_point deadline_{};
  Clock::time_point started_ = Clock::now();
  GroupResult result_;
};

WorkerGroup::WorkerGroup(const GroupContext& context, const Attempt& attempt)
    : context_(context),
      attempt_(attempt),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      workers_(std::size_t(context.plan.workers)) {
  if (!epoll_) throw_errno("launcher: epoll_create1");
  watch(context_.signals.fd(), kSignals);
  if (context_.logs.router_pidfd() >= 0) watch(context_.logs.router_pidfd(), kRouter);
  for (int rank = 0; rank < context.plan.workers; ++rank) {
    const std::string& path = context.logs.error_file_of(rank);
    error_files_.push_back(path.empty() ? ErrorFile() : ErrorFile(path));
  }
  result_.record.restart_count = attempt.restart_count;
  result_.record.master_port = attempt.master_port;
  result_.record.started = wall_clock();
}

GroupResult WorkerGroup::run() {
  start();
  context_.logs.close_writers();
  while (!all_gone()) {
    wait();
    // What is left in the groups of workers that are all done has no purpose any more.
    if (stage_ == Stage::running && all_ended()) begin_end(SIGTERM);
  }
  result_.record.seconds = wall_clock() - result_.record.started;
  return std::move(result_);
}

void WorkerGroup::start() {
  const Environment inherited = this_environment();
  const std::string path = value_of(inherited, "PATH");
  const std::string& wanted = context_.plan.command.front();
  const std::string program = find_program(wanted, path.empty() ? "/usr/bin:/bin" : path);
  if (program.empty()) return refuse(wanted, ENOENT);
  // Python would say so itself, but once per worker.
  if (!context_.plan.script.empty() && access(context_.plan.script.c_str(), R_OK) != 0)
    return refuse_script(context_.plan.script, errno);
  try {
    for (int rank = 0; rank < context_.plan.workers && result_.start_failure.empty(); ++rank)
      start_worker(rank, program, inherited);
  } catch (const Error& error) {
    result_.start_failure = error.what();
    result_.code = exit_code(error);
    say("lockstep: error: " + result_.start_failure + "\n");
    begin_end(SIGTERM);
  }
}

void WorkerGroup::start_worker(int rank, const std::string& program, const Environment& inherited) {
  const SpawnContext context{.signals = context_.signals,
                             .descriptors = context_.descriptors,
                             .reaper_pipe = context_.reaper.pipe(),
                             .stdin_is_terminal = isatty(STDIN_FILENO) == 1,
                             .stdout_fd = context_.logs.stdout_of(rank),
                             .stderr_fd = context_.logs.stderr_of(rank)};
  Worker& worker = workers_[std::size_t(rank)];
  ExecFailure failure;
  worker.process =
      spawn(program, worker_command(context_.plan.command, rank),
            worker_environment(inherited, context_.plan, attempt_, rank, error_files_[std::size_t(rank)].path()),
            context, failure);
  if (failure.error != 0) return refuse(program, failure.error);
  worker.ended = worker.group_gone = false;
  watch(worker.process.pidfd.get(), std::uint64_t(rank));
}

void WorkerGroup::refuse(const std::string& program, int error) {
  result_.code = error == ENOENT || error == ENOTDIR ? kExitNotFound : kExitNotExecutable;
  result_.never_ran = true;
  std::string text = "cannot execute '" + program + "': " + std::strerror(error);
  if (error == ENOENT && program.find('/') == std::string::npos)
    text += access(program.c_str(), F_OK) == 0 ? " in PATH (write ./" + program + " for the one in this folder)"
                                               : " in PATH";
  else if (error == ENOENT && access(program.c_str(), F_OK) == 0)
    text += " (the interpreter in its first line is missing)";
  result_.start_failure = text;
  say("lockstep: " + text + "\n");
  begin_end(SIGTERM);
}

void WorkerGroup::refuse_script(const std::string& script, int error) {
  result_.code = error == ENOENT || error == ENOTDIR ? kExitNotFound : kExitNotExecutable;
  result_.never_ran = true;
  result_.start_failure = "cannot read '" + script + "': " + std::strerror(error);
  say("lockstep: " + result_.start_failure + "\n");
}

void WorkerGroup::wait() {
  context_.console.wait(epoll_.get(), stage_ == Stage::running ? Clock::time_point::max() : deadline_);
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), int(events.size()), 0);
  if (count < 0 && errno != EINTR) throw_errno("launcher: epoll_wait");
  // Events come in the order in which they happened.
  for (int i = 0; i < count; ++i) {
    const std::uint64_t what = events[std::size_t(i)].data.u64;
    what == kSignals ? on_signals() : what == kRouter ? on_router_end() : on_worker_end(int(what));
  }
  bury_orphans();
  for (Worker& worker : workers_) look_for_end_of_group(worker);
  if (stage_ != Stage::running && Clock::now() >= deadline_) on_deadline();
}

void WorkerGroup::on_signals() {
  while (const int signal = context_.signals.next()) {
    if (signal == SIGCHLD) {
      orphans_to_bury_ = true;
      continue;
    }
    if (stage_ == Stage::last_words) conclude();
    const int first = std::exchange(result_.stop_signal, result_.stop_signal != 0 ? result_.stop_signal : signal);
    if (stage_ == Stage::running) {
      result_.code = 128 + signal;
      begin_end(signal);
    } else if (ends_at_once(first, signal)) {
      result_.cut_short = true;
      kill_everything();
    }
  }
}

void WorkerGroup::on_worker_end(int rank) {
  Worker& worker = workers_[std::size_t(rank)];
  siginfo_t info{};
  if (waitid(P_PID, id_t(worker.process.pid), &info, WEXITED | WNOHANG) != 0) throw_errno("launcher: waitid");
  if (info.si_pid == 0) return;
  End end{.rank = rank, .pid = worker.process.pid, .when = wall_clock()};
  (info.si_code == CLD_EXITED ? end.exit_code : end.signal) = info.si_status;
  worker.ended = true;
  worker.process.pidfd = base::UniqueFd();
  result_.record.ends.push_back(end);
  if (stage_ == Stage::running && end.failed())
    on_failure(end);
  else if (stage_ == Stage::last_words && !somebody_is_dying() &&
           !first_failure(result_.record.ends, told_, recorded()).still_running)
    conclude();
}

// It belongs to the attempt as a worker does. No pipe has broken, for the agent keeps the read ends: without that the
// workers would die of SIGPIPE, one by one and unexplained.
void WorkerGroup::on_router_end() {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, context_.logs.router_pidfd(), nullptr);
  siginfo_t info{};
  waitid(P_PID, id_t(context_.logs.router_pid()), &info, WEXITED | WNOHANG | WNOWAIT);
  End end{.pid = context_.logs.router_pid()};
  (info.si_code == CLD_EXITED ? end.exit_code : end.signal) = info.si_status;
  const std::string what = "the log router (process " + std::to_string(end.pid) + ") has ended: " + describe(end);
  say("lockstep: " + what + (stage_ == Stage::running ? "; the workers' output goes nowhere, so they are ended" : "") +
      "\n");
  if (stage_ != Stage::running) return;
  result_.record.launcher_failure = what;
  result_.code = kExitFailure;
  result_.uptime = std::chrono::duration_cast<milliseconds>(Clock::now() - started_);
  begin_end(SIGTERM);
}

void WorkerGroup::on_failure(const End& end) {
  base::ControlPage& page = context_.page;
  const std::uint32_t generation = page.generation.load();
  if (!raise_abort(page, generation, failure_of(end, whereabouts(page, end.rank))))
    told_ = read_failure(page, generation);
  // Ending a worker that has claimed the failure would cut off its message; and one that is dying,
  // slowly for all its memory, may have been first although its peers noticed before we did.
  if ((somebody_is_dying() || first_failure(result_.record.ends, told_, recorded()).still_running) &&
      context_.plan.grace > milliseconds(0))
    enter(Stage::last_words, std::min(context_.plan.grace, kLastWords));
  else
    conclude();
}

void WorkerGroup::conclude() {
  Verdict verdict = first_failure(result_.record.ends, told_, recorded());
  begin_end(SIGTERM);  // first of all: the peers end while we look for reasons, and while a slow terminal takes them
  verdict.error = error_files_[std::size_t(verdict.end.rank)].read();
  // A shell reports the death of the program it ran as an exit code.
  verdict.out_of_memory = context_.out_of_memory.explain(verdict.end.pid, exit_code(verdict.end) - 128);
  result_.code = verdict.code;
  result_.uptime = std::chrono::duration_cast<milliseconds>(Clock::now() - started_);
  result_.record.where = whereabouts(context_.page, verdict.end.rank);
  say(report(verdict, result_.record.where, host_name()));
  result_.record.first = std::move(verdict);
}

void WorkerGroup::on_deadline() {
  if (stage_ == Stage::last_words) return conclude();
  if (stage_ == Stage::ending) return kill_everything();
  for (Worker& worker : workers_) {
    if (worker.group_gone) continue;
    say("lockstep: process group " + std::to_string(worker.process.pid) + " cannot be killed, left behind\n");
    worker.group_gone = true;
    result_.left_behind = true;
  }
}

void WorkerGroup::begin_end(int signal) {
  enter(Stage::ending, context_.plan.grace);
  for (const Worker& worker : workers_) {
    if (!worker.ended && process_state(worker.process.pid).is_stopped()) {
      signal_group(worker, SIGKILL);
    } else {
      signal_group(worker, signal);
      signal_group(worker, SIGCONT);  // a stopped process deeper in the group wakes up to take the signal
    }
  }
}

void WorkerGroup::kill_everything() {
  enter(Stage::killing, kKillWait);
  for (const Worker& worker : workers_) signal_group(worker, SIGKILL);
}

// Orphans of the workers are the agent's children: those that have ended are buried, so that they
// neither pile up nor keep their group in being. Workers, reaper and log router have their own ways.
void WorkerGroup::bury_orphans() {
  if (!orphans_to_bury_) return;
  orphans_to_bury_ = false;
  const std::string id = std::to_string(getpid());
  std::ifstream children("/proc/" + id + "/task/" + id + "/children");
  for (pid_t pid = 0; children >> pid;) {
    const bool ours = pid == context_.reaper.pid() || pid == context_.logs.router_pid() ||
                      std::ranges::any_of(workers_, [&](const Worker& worker) { return worker.process.pid == pid; });
    if (!ours) waitpid(pid, nullptr, WNOHANG);
  }
}

void WorkerGroup::look_for_end_of_group(Worker& worker) {
  if (!worker.ended || worker.group_gone) return;
  if (kill(-worker.process.pid, 0) == 0 || errno != ESRCH) return;
  worker.group_gone = true;
  context_.reaper.forget(worker.process.pid);
}

bool WorkerGroup::somebody_is_dying() const {
  return std::ranges::any_of(
      workers_, [](const Worker& worker) { return !worker.ended && process_state(worker.process.pid).is_dying(); });
}

// Which error files were written so far, and when.
std::vector<Recorded> WorkerGroup::recorded() const {
  std::vector<Recorded> written;
  for (std::size_t rank = 0; rank < error_files_.size(); ++rank)
    if (const auto when = error_files_[rank].written()) written.push_back({int(rank), *when});
  return written;
}

void WorkerGroup::enter(Stage stage, milliseconds deadline) {
  stage_ = stage;
  deadline_ = Clock::now() + deadline;
}

void WorkerGroup::watch(int fd, std::uint64_t what) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = what}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw_errno("launcher: epoll_ctl");
}

}  // namespace

GroupResult run_worker_group(const GroupContext& context, const Attempt& attempt) {
  return WorkerGroup(context, attempt).run();
}

}  // namespace lockstep::launch
