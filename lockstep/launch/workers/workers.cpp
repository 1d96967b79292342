#include "lockstep/launch/workers/workers.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/launch/workers/process_state.h"

namespace lockstep::launch {

Workers::Workers(EventLoop& loop, Reaper& reaper, int count, std::function<void(const End&)> tell_end)
    : loop_(loop), reaper_(reaper), tell_end_(std::move(tell_end)), workers_(std::size_t(count)) {}

ExecFailure Workers::start(int rank, const std::string& program, const std::vector<std::string>& arguments,
                           const Environment& environment, const SpawnContext& context) {
  Worker& worker = workers_[std::size_t(rank)];
  ExecFailure failure;
  worker.process = spawn(program, arguments, environment, context, failure);
  if (failure.error != 0) return failure;
  worker.ended = worker.gone = false;
  worker.watch = loop_.watch(worker.process.pidfd.get(), [this, rank] { on_end(rank); });
  return failure;
}

void Workers::on_end(int rank) {
  Worker& worker = workers_[std::size_t(rank)];
  siginfo_t info{};
  if (waitid(P_PID, id_t(worker.process.pid), &info, WEXITED | WNOHANG) != 0) throw_errno("launcher: waitid");
  if (info.si_pid == 0) return;
  End end{.rank = rank, .pid = worker.process.pid, .when = wall_clock()};
  (info.si_code == CLD_EXITED ? end.exit_code : end.signal) = info.si_status;
  worker.ended = true;
  worker.watch = {};
  worker.process.pidfd = base::UniqueFd();
  look_for_gone();
  tell_end_(end);
}

// To the whole group, or at least to a worker that has left its own.
void Workers::send(const Worker& worker, int signal) {
  if (worker.gone) return;
  if (kill(-worker.process.pid, signal) != 0 && !worker.ended)
    syscall(SYS_pidfd_send_signal, worker.process.pidfd.get(), signal, nullptr, 0);
}

void Workers::end_all(int signal) {
  for (const Worker& worker : workers_) {
    if (!worker.ended && process_state(worker.process.pid).is_stopped()) {
      send(worker, SIGKILL);
    } else {
      send(worker, signal);
      send(worker, SIGCONT);
    }
  }
}

void Workers::kill_all() {
  for (const Worker& worker : workers_) send(worker, SIGKILL);
}

std::vector<pid_t> Workers::abandon_all() {
  std::vector<pid_t> groups;
  for (Worker& worker : workers_) {
    if (std::exchange(worker.gone, true)) continue;
    groups.push_back(worker.process.pid);
    worker.ended = true;
    worker.watch = {};
  }
  return groups;
}

void Workers::look_for_gone() {
  for (Worker& worker : workers_) {
    if (!worker.ended || worker.gone) continue;
    if (kill(-worker.process.pid, 0) == 0 || errno != ESRCH) continue;
    worker.gone = true;
    reaper_.forget(worker.process.pid);
  }
}

bool Workers::all_ended() const { return std::ranges::all_of(workers_, &Worker::ended); }

bool Workers::all_gone() const { return std::ranges::all_of(workers_, &Worker::gone); }

bool Workers::somebody_is_dying() const {
  return std::ranges::any_of(
      workers_, [](const Worker& worker) { return !worker.ended && process_state(worker.process.pid).is_dying(); });
}

bool Workers::awaits(pid_t pid) const {
  return std::ranges::any_of(workers_,
                             [pid](const Worker& worker) { return !worker.ended && worker.process.pid == pid; });
}

}  // namespace lockstep::launch
