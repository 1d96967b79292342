#include "lockstep/launch/agent/agent.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/base/generation.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/segment.h"
#include "lockstep/launch/agent/leash.h"
#include "lockstep/launch/agent/policy.h"
#include "lockstep/launch/agent/port.h"
#include "lockstep/launch/agent/running_attempt.h"
#include "lockstep/launch/agent/state_saver.h"
#include "lockstep/launch/beside.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/launch/nodes/make_nodes.h"
#include "lockstep/launch/report/job_report.h"
#include "lockstep/launch/report/verdict.h"
#include "lockstep/launch/workers/orphans.h"
#include "lockstep/launch/workers/reaper.h"
#include "lockstep/launch/workers/signals.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using Clock = EventLoop::Clock;

// How long the console may take for what the workers have written: when all went well and when the
// job failed (a signal ends the wait), before a restart, and when somebody does not want to wait.
constexpr milliseconds kShowLogs{30'000};
constexpr milliseconds kShowLogsOfFailure{5'000};
constexpr milliseconds kShowLogsBeforeRestart{1'000};
constexpr milliseconds kShowLogsInHaste{200};

// In another pid namespace's /proc our paths would name a stranger's descriptors.
void require_own_proc() {
  char text[32] = "";
  const ssize_t length = readlink("/proc/self", text, sizeof text - 1);
  if (length <= 0 || std::to_string(getpid()) != std::string(text, std::size_t(length)))
    throw Error(
        "/proc is not this process's (another pid namespace's, or not mounted): mount it, as unshare --mount-proc");
}

// Each worker takes a few descriptors here; the usual soft limit is not meant for that. Workers
// get the old one back.
rlimit raise_descriptor_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return limit;
}

// What is known of an attempt whose workers have ended.
AttemptFacts facts_of(const AttemptResult& result, const Plan& plan, const base::ControlPage& page) {
  const std::uint32_t generation = page.generation.load();
  const bool failed = result.code != 0;
  return {.code = result.code,
          .stopped = result.stop_signal != 0,
          .never_ran = result.never_ran,
          .left_behind = result.left_behind,
          .bad_input = result.record.first && is_bad_input(*result.record.first),
          .port_was_taken =
              failed && plan.master_port == 0 && plan.node.rank == 0 && stranger_has_port(result.record.master_port),
          .joined = std::any_of(page.ranks, page.ranks + plan.workers,
                                [&](const base::RankWords& words) { return base::has_joined(words, generation); }),
          .uptime = result.uptime};
}

class Agent {
 public:
  explicit Agent(const Plan& plan);
  int run();

 private:
  void run_to_the_end();
  void save_state();
  void make_folder();
  bool run_once();
  bool end_without_attempt(int code);
  AttemptResult run_attempt(const Meeting& meeting);
  void show_end(AttemptResult& result, Next next);
  void note_stop(int signal);
  void announce(const Decision& decision);
  void write_report();
  void on_signals();
  void on_stop(int signal);
  void ask_to_end(int signal);
  void on_reaper_end();

  Plan plan_;  // its place among the nodes is that of the attempt
  base::Segment segment_;
  Signals signals_;
  base::Outlet console_ = base::Outlet::console(STDERR_FILENO);
  milliseconds patience_ = base::kPatience;  // of the end with the console
  Reaper reaper_;
  const rlimit worker_limit_ = raise_descriptor_limit();
  OutOfMemoryWatch out_of_memory_;
  std::string run_folder_;
  JobRecord job_;
  int stop_signal_ = 0;  // came while there was no attempt to take it, and is not followed yet
  EventLoop loop_{console_};
  // What the agent attends to all the time. What comes is a line here: an object that registers with the loop.
  const EventLoop::Handle signal_watch_ = loop_.watch(signals_.fd(), [this] { on_signals(); });
  EventLoop::Handle reaper_watch_ = loop_.watch(reaper_.pidfd(), [this] { on_reaper_end(); });
  std::optional<Leash> leash_;
  StateSaver state_saver_{loop_, console_};
  const std::unique_ptr<Nodes> nodes_;
  std::optional<RunningAttempt> attempt_;  // until its last output is shown
};

Agent::Agent(const Plan& plan)
    : plan_(plan),
      segment_(base::Segment::create(plan.workers)),
      signals_(plan.signals),
      nodes_(make_nodes(plan_, loop_, console_, reaper_)) {
  // Orphans of the workers become children of the agent, which thus learns of their end.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  require_own_proc();
  if (plan.leash >= 0)
    leash_.emplace(
        loop_, plan.leash, [this](int signal) { on_stop(signal); },
        [this] {
          nodes_->let_go();
          ask_to_end(SIGTERM);
        });
  if (!nodes_->speaks()) plan_.report.clear();  // the hosting agent's is that of all nodes
  if (!plan_.report.empty()) check_report_file(plan_.report);
  job_.version = LOCKSTEP_VERSION;
  job_.run_id = plan.run_id.empty() ? random_id() : plan.run_id;
  job_.host = host_name();
  job_.started = wall_clock();
}

int Agent::run() {
  run_to_the_end();
  save_state();
  write_report();
  // The one wait beside the loop: nobody is left whom it could serve.
  console_.flush(Clock::now() + (stop_signal_ == 0 ? patience_ : milliseconds(0)), signals_.stop_fd());
  return job_.exit_code;
}

void Agent::run_to_the_end() {
  std::optional<base::Segment> next;
  const auto take_over = [&] {
    if (next) segment_ = *std::exchange(next, std::nullopt);
  };
  try {
    make_folder();
    const auto begin_next = [&] { next.emplace(base::next_generation(std::move(segment_), plan_.workers)); };
    while (run_once()) {
      // Where a process of the last generation lives its memory is copied; the other nodes must not miss this one
      // meanwhile. Else there is less to do than a thread costs, whose wake-ups were two thirds of a restart.
      if (segment_.is_held())
        beside(loop_, begin_next);
      else
        begin_next();
      take_over();
    }
  } catch (const Error& error) {
    take_over();       // whoever has thrown
    attempt_.reset();  // its workers end now
    job_.start_failure = error.what();
    if (job_.attempts.empty()) {
      job_.outcome = "not started";
      job_.exit_code = exit_code(error);
      write_report();
      throw;
    }
    // The news is still why the last attempt failed.
    console_.say("lockstep: not restarted: " + job_.start_failure + "\n");
    job_.attempts.back().next = to_string(Next::finish);
  }
}

void Agent::save_state() {
  if (job_.exit_code == kExitDone || job_.exit_code == kExitStopped) return;  // then the program has saved all
  const SpawnContext context{.signals = signals_,
                             .descriptors = worker_limit_,
                             .reaper_pipe = reaper_.pipe(),
                             .stdin_is_terminal = isatty(STDIN_FILENO) == 1};
  state_saver_.save(segment_, plan_, context);
}

void Agent::make_folder() {
  if (!wants_folder(plan_.logs, plan_.workers)) return;
  run_folder_ = make_run_folder(plan_.logs.dir, job_.run_id);
  if (!run_folder_.empty() && plan_.logs.dir.empty()) console_.say("lockstep: logs in " + run_folder_ + "\n");
}

// One attempt and what follows from it. Returns whether there is to be another.
bool Agent::run_once() {
  const Meeting meeting = nodes_->meet([this] { return stop_signal_; });
  if (meeting.over) return end_without_attempt(*meeting.over);
  plan_.node = meeting.place;
  plan_.master_addr = meeting.master_addr;
  AttemptResult result = run_attempt(meeting);
  const Decision decision =
      nodes_->agree(result, facts_of(result, plan_, segment_.control()), [this] { return stop_signal_; });
  show_end(result, decision.next);
  job_.exit_code = result.code;
  job_.start_failure = result.start_failure;
  job_.outcome = result.code == kExitDone       ? "succeeded"
                 : result.code == kExitStopped  ? "stopped"
                 : result.start_failure.empty() ? "failed"
                                                : "not started";
  job_.attempts.push_back(std::move(result.record));
  job_.attempts.back().generation = meeting.generation;
  job_.attempts.back().node = meeting.place;
  job_.attempts.back().next = to_string(decision.next);
  announce(decision);
  if (decision.next == Next::finish) {
    if (result.stop_signal != 0) note_stop(result.stop_signal);
    return false;
  }
  // A signal is left to meet(), which tells the other nodes of it.
  loop_.run_until([this] { return stop_signal_ != 0; }, Clock::now() + decision.delay);
  return true;
}

void Agent::note_stop(int signal) {
  job_.outcome = "stopped";
  job_.stop_signal = signal_name(signal);
}

// A signal came, or the others have ended it, while this node waited for its place.
bool Agent::end_without_attempt(int code) {
  job_.exit_code = code;
  job_.outcome = code == kExitDone ? "succeeded" : code == kExitStopped ? "stopped" : "failed";
  if (const int stop = std::exchange(stop_signal_, 0); stop != 0) note_stop(stop);
  return false;
}

AttemptResult Agent::run_attempt(const Meeting& meeting) {
  attempt_.emplace(AttemptContext{.loop = loop_,
                                  .plan = plan_,
                                  .page = segment_.control(),
                                  .signals = signals_,
                                  .reaper = reaper_,
                                  .out_of_memory = out_of_memory_,
                                  .console = console_,
                                  .run_folder = run_folder_,
                                  .descriptors = worker_limit_,
                                  .on_failure = [this](const Verdict& verdict,
                                                       const std::string& text) { nodes_->on_failure(verdict, text); }},
                   Attempt{.run_id = meeting.run_id.empty() ? job_.run_id : meeting.run_id,
                           .restart_count = meeting.restart_count,
                           .master_port = meeting.master_port,
                           .segment_path = segment_.invitation(),
                           .store = meeting.store,
                           .cores = base::usable_cores()});
  nodes_->attend(&*attempt_);
  try {
    loop_.run_until([this] { return attempt_->over(); });
  } catch (...) {  // the loop turns again, and the attempt is gone by then
    nodes_->attend(nullptr);
    throw;
  }
  nodes_->attend(nullptr);
  return attempt_->take_result();
}

// What the workers have written, to the end; and the end of what the failed worker printed: all of it for the report,
// on the terminal what was not seen there.
void Agent::show_end(AttemptResult& result, Next next) {
  AttemptLogs& logs = attempt_->logs();
  const milliseconds deadline = result.cut_short       ? kShowLogsInHaste
                                : next != Next::finish ? kShowLogsBeforeRestart
                                : result.code != 0     ? kShowLogsOfFailure
                                                       : kShowLogs;
  if (result.cut_short) patience_ = kShowLogsInHaste;
  const bool complete = logs.finish(loop_, deadline, [this] { return stop_signal_ != 0; });
  if (!logs.filed())
    console_.say("lockstep: the end of the workers' output is lost: the files in " + run_folder_ +
                 " could not be finished\n");
  else if (!complete && logs.on_console())
    console_.say("lockstep: not all output was shown: see the files in " + run_folder_ + "\n");
  if (const pid_t router = logs.left_behind(); router >= 0)
    console_.say("lockstep: the log router (process " + std::to_string(router) + ") cannot be killed, left behind\n");
  if (const std::optional<Verdict>& first = result.record.first) {
    if (first->out_of_memory) out_of_memory_.reset();
    result.record.log = logs.tails(first->end.rank, /*unseen=*/false);
    console_.say(describe_tails(logs.tails(first->end.rank, /*unseen=*/true)));
  }
  attempt_.reset();
}

void Agent::announce(const Decision& decision) {
  if (!nodes_->speaks()) return;
  if (!decision.why_not.empty()) console_.say("lockstep: not restarted: " + decision.why_not + "\n");
  if (decision.next == Next::new_port)
    console_.say("lockstep: another program has taken MASTER_PORT " + std::to_string(job_.attempts.back().master_port) +
                 ": starting again with another\n");
  if (decision.next != Next::restart) return;
  std::string text =
      "lockstep: restart " + std::to_string(decision.restarts) + " of " + std::to_string(plan_.max_restarts);
  if (decision.delay.count() > 0) text += ", in " + std::to_string(decision.delay.count()) + " ms";
  console_.say(text + "\n");
}

void Agent::on_signals() {
  bool children_ended = false;
  while (const int signal = signals_.next()) {
    if (signal == SIGCHLD) {
      children_ended = true;
    } else {
      on_stop(signal);
    }
  }
  if (!children_ended) return;
  bury_orphans([this](pid_t pid) {
    return pid == reaper_.pid() || state_saver_.awaits(pid) || (attempt_ && attempt_->awaits(pid));
  });
  if (attempt_) attempt_->on_child_end();
}

void Agent::on_stop(int signal) {
  state_saver_.hurry();
  ask_to_end(signal);
}

// By a signal, or by the end of the leash, which comes when the other agents have ended: no reason to leave a state
// unsaved.
void Agent::ask_to_end(int signal) {
  if (attempt_ && !attempt_->over()) {
    attempt_->on_stop(signal);
    nodes_->on_stop(signal);
  } else if (stop_signal_ == 0) {
    stop_signal_ = signal;
  }
}

// No reason to stop the job.
void Agent::on_reaper_end() {
  reaper_watch_ = {};
  console_.say("lockstep: the reaper (process " + std::to_string(reaper_.pid()) +
               ") has ended: if this launcher is killed, processes of the workers may stay\n");
}

void Agent::write_report() {
  job_.seconds = wall_clock() - job_.started;
  const std::string text =
      nodes_->report([this] { return to_json(job_, plan_); }, !plan_.report.empty(), [this] { return stop_signal_; });
  if (plan_.report.empty()) return;
  try {
    write_report_file(plan_.report, text);
  } catch (const Error& error) {  // the job's outcome is the news, not this
    console_.say("lockstep: error: the report is lost: " + std::string(error.what()) + "\n");
  }
}

}  // namespace

int run_agent(const Plan& plan) { return Agent(plan).run(); }

}  // namespace lockstep::launch
