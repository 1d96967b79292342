#include "lockstep/launch/agent/running_attempt.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/room.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/launch/report/verdict.h"

namespace lockstep::launch {
namespace {

// Whether the ranks have made room. Their words wake no agent, and it may be that none of them ends.
constexpr std::chrono::milliseconds kBetweenLooks{500};

std::vector<ErrorFile> make_error_files(const AttemptLogs& logs, int workers) {
  std::vector<ErrorFile> files;
  for (int rank = 0; rank < workers; ++rank) {
    const std::string& path = logs.error_file_of(rank);
    files.push_back(path.empty() ? ErrorFile() : ErrorFile(path));
  }
  return files;
}

std::chrono::milliseconds since(EventLoop::Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(EventLoop::Clock::now() - start);
}

}  // namespace

RunningAttempt::RunningAttempt(const AttemptContext& context, const Attempt& attempt)
    : context_(context),
      attempt_(attempt),
      logs_(context.plan.logs, context.run_folder, attempt.restart_count, context.plan.workers,
            context.plan.node.first_rank),
      inquiry_(context.page, make_error_files(logs_, context.plan.workers)),
      stages_(context.plan.grace),
      workers_(context.loop, context.reaper, context.plan.workers, [this](const End& end) { on_worker_end(end); }) {
  result_.record.restart_count = attempt.restart_count;
  result_.record.master_port = attempt.master_port;
  result_.record.started = wall_clock();
  if (logs_.router_pidfd() >= 0) router_watch_ = context_.loop.watch(logs_.router_pidfd(), [this] { on_router_end(); });
  start();
  logs_.close_writers();
}

void RunningAttempt::start() {
  try {
    const std::optional<Refusal> refusal = start_workers();
    if (!refusal) return;
    result_.code = refusal->code;
    result_.never_ran = true;
    result_.start_failure = refusal->text;
    context_.console.say("lockstep: " + refusal->text + "\n");
  } catch (const Error& error) {
    result_.code = exit_code(error);
    result_.start_failure = error.what();
    context_.console.say("lockstep: error: " + result_.start_failure + "\n");
  }
  follow(stages_.stop_running());
}

std::optional<Refusal> RunningAttempt::start_workers() {
  const Plan& plan = context_.plan;
  const Environment inherited = this_environment();
  const std::string path = value_of(inherited, "PATH");
  const std::string program = find_program(plan.command.front(), path.empty() ? "/usr/bin:/bin" : path);
  if (program.empty()) return cannot_execute(plan.command.front(), ENOENT);
  // Python would say so itself, but once per worker.
  if (!plan.script.empty() && access(plan.script.c_str(), R_OK) != 0) return cannot_read(plan.script, errno);
  SpawnContext spawn_context{.signals = context_.signals,
                             .descriptors = context_.descriptors,
                             .reaper_pipe = context_.reaper.pipe(),
                             .stdin_is_terminal = isatty(STDIN_FILENO) == 1};
  for (int rank = 0; rank < plan.workers; ++rank) {
    spawn_context.stdout_fd = logs_.stdout_of(rank);
    spawn_context.stderr_fd = logs_.stderr_of(rank);
    const std::optional<cpu_set_t> cores = cores_of_worker(plan, rank);
    spawn_context.cores = cores ? &*cores : nullptr;
    const ExecFailure failure =
        workers_.start(rank, program, worker_command(plan.command, rank),
                       worker_environment(inherited, plan, attempt_, rank, inquiry_.error_file(rank)), spawn_context);
    if (failure.error != 0) return cannot_execute(program, failure.error);
  }
  return std::nullopt;
}

void RunningAttempt::on_stop(int signal) {
  if (stages_.stage() == Stage::running) result_.code = 128 + signal;
  const Orders orders = stages_.on_stop(signal);
  if (orders.signal == SIGKILL) result_.cut_short = true;
  follow(orders);
}

void RunningAttempt::end_for_others(bool at_once) {
  if (at_once || stages_.stage() == Stage::running) result_.code = kExitFailure;
  follow(at_once ? stages_.cut_off() : stages_.stop_running());
}

// To ask once more, before each further look, changes nothing.
bool RunningAttempt::make_room() {
  if (!base::ask_for_room(context_.page)) return false;
  room_watch_ = context_.loop.at(EventLoop::Clock::now() + kBetweenLooks, [this] {
    if (stages_.stage() != Stage::running) return;
    if (base::has_made_room(context_.page))
      follow(stages_.on_leaving());
    else
      make_room();
  });
  return true;
}

void RunningAttempt::on_worker_end(const End& end) {
  result_.record.ends.push_back(end);
  const Stage stage = stages_.stage();
  // Who makes room ends as one that follows a failure does, however its program ends for that.
  const bool fails = stage == Stage::running && end.failed() && !base::has_made_room(context_.page);
  if (fails) inquiry_.open(end);
  if (fails || stage == Stage::last_words) follow(stages_.on_failure(more_to_come()));
  if (workers_.all_ended()) follow(stages_.stop_running());
}

// Ending a worker that has claimed the failure would cut off its message; and one that is dying, slowly for all its
// memory, may have been first although its peers noticed before we did.
bool RunningAttempt::more_to_come() const {
  return workers_.somebody_is_dying() || inquiry_.first(result_.record.ends).still_running;
}

// It belongs to the attempt as a worker does. No pipe has broken, for the agent keeps the read ends: without that the
// workers would die of SIGPIPE, one by one and unexplained.
void RunningAttempt::on_router_end() {
  router_watch_ = {};
  siginfo_t info{};
  waitid(P_PID, id_t(logs_.router_pid()), &info, WEXITED | WNOHANG | WNOWAIT);
  End end{.pid = logs_.router_pid()};
  (info.si_code == CLD_EXITED ? end.exit_code : end.signal) = info.si_status;
  const bool too_early = stages_.stage() == Stage::running;
  const std::string what = "the log router (process " + std::to_string(end.pid) + ") has ended: " + describe(end);
  context_.console.say("lockstep: " + what +
                       (too_early ? "; the workers' output goes nowhere, so they are ended" : "") + "\n");
  if (!too_early) return;
  result_.record.launcher_failure = what;
  result_.code = kExitFailure;
  result_.uptime = since(started_);
  follow(stages_.stop_running());
}

void RunningAttempt::follow(const Orders& orders) {
  std::optional<Verdict> first;
  if (orders.conclude) first = inquiry_.first(result_.record.ends);
  if (orders.signal == SIGKILL)
    workers_.kill_all();
  else if (orders.signal != 0)
    workers_.end_all(orders.signal);
  if (orders.deadline) {
    deadline_ = context_.loop.at(EventLoop::Clock::now() + *orders.deadline, [this] {
      workers_.look_for_gone();  // a process that has left its group said nothing
      if (stages_.stage() == Stage::running)
        context_.console.say("lockstep: workers that did not end for a node that has come are ended\n");
      follow(stages_.on_deadline());
    });
  }
  // Behind the signal: the workers end while we look for reasons, and while a slow terminal takes them.
  if (first) conclude(std::move(*first));
  if (!orders.abandon) return;
  for (const pid_t group : workers_.abandon_all()) {
    context_.console.say("lockstep: process group " + std::to_string(group) + " cannot be killed, left behind\n");
    result_.left_behind = true;
  }
}

void RunningAttempt::conclude(Verdict first) {
  inquiry_.explain(first, context_.out_of_memory);
  result_.code = first.code;
  result_.uptime = since(started_);
  result_.record.where = whereabouts(context_.page, first.end.rank);
  context_.on_failure(first, report(first, result_.record.where, host_name(), context_.plan.node.first_rank));
  result_.record.first = std::move(first);
}

AttemptResult RunningAttempt::take_result() {
  router_watch_ = {};  // from now on the router ends when it has done its work
  deadline_ = {};
  const std::vector<End>& ends = result_.record.ends;
  const bool all_well = !ends.empty() && std::ranges::none_of(ends, &End::failed);
  if (base::has_made_room(context_.page)) {
    result_.code = std::max(result_.code, int(kExitFailure));  // they have neither done their work nor saved it
  } else if (all_well && std::ranges::any_of(ends, &End::stopped)) {
    // Also where it was asked by a signal to the agent: who knows the code starts the job again, and loses nothing.
    result_.code = kExitStopped;
  }
  result_.stop_signal = stages_.stop_signal();
  result_.record.seconds = wall_clock() - result_.record.started;
  return std::move(result_);
}

}  // namespace lockstep::launch
