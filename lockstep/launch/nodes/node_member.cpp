#include "lockstep/launch/nodes/node_member.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/rendezvous/first_failure.h"

namespace lockstep::launch {

namespace meet = rendezvous;
using std::chrono::milliseconds;

namespace {

// Before "waiting for ..." is said: agents that are started together should not say it.
constexpr milliseconds kPatienceWithReasons{1'000};
// How long the hosting agent's word is waited for, when this one was asked to end.
constexpr milliseconds kFarewell{2'000};
// How long a report may take to be taken, and how long the others' are waited for.
constexpr milliseconds kReportTaken{5'000};
constexpr milliseconds kReports{10'000};
// How long workers may take to end when the connection to the hosting agent was closed: less than kCutOffMargin.
constexpr milliseconds kClosedGrace{250};

meet::FailureKind kind_of(const Verdict& verdict) {
  if (was_killed(verdict.end)) return meet::FailureKind::killed;
  const std::string why = cause(verdict);
  if (why.empty()) return meet::FailureKind::ended;
  return meet::speaks_of_connection(why) ? meet::FailureKind::connection : meet::FailureKind::told;
}

// Before a generation's workers are there; `started`: it has begun elsewhere.
void leave(HostLine& line, std::int64_t generation, int signal, bool started) {
  line.send(meet::Stopping{.generation = generation, .signal = signal});
  if (started) line.send(meet::Done{.generation = generation, .code = 128 + signal, .signal = signal});
}

void adopt(const meet::Outcome& outcome, AttemptResult& result) {
  result.code = int(outcome.code);
  if (result.stop_signal == 0) result.stop_signal = int(outcome.again ? 0 : outcome.signal);
  result.record.first_elsewhere = outcome.to_blame ? "" : outcome.text;
  if (!outcome.to_blame) result.record.first.reset();
}

}  // namespace

NodeMember::NodeMember(const Plan& plan, EventLoop& loop, base::Outlet& console, Reaper& reaper)
    : plan_(plan),
      loop_(loop),
      console_(console),
      own_host_(host_name()),
      agent_(plan, loop,
             {.message = [this](const meet::Message& message) { on_message(message); },
              .waits = [this](const std::string& why) { say_reason(why); },
              .refused = [this](const std::string& why) { refused_ = why; },
              .lost = [this](const std::string& why, Parting how) { lose(why, how); },
              .leased =
                  [&reaper](Clock::time_point until) {
                    reaper.kill_after(std::chrono::ceil<milliseconds>(until - Clock::now()));
                  },
              .meets = [&reaper](int fd) { reaper.hold(fd); }},
             [this](const std::string& line) { console_.say("lockstep: " + one_line(line) + "\n"); }) {}

// Not what is over before anybody has read it.
void NodeMember::say_reason(const std::string& reason) {
  const Clock::time_point when = waits_since_ + kPatienceWithReasons;
  const auto say = [this, reason] {
    if (std::exchange(reason_, reason) != reason) console_.say("lockstep: " + one_line(reason) + "\n");
  };
  if (Clock::now() >= when) return say();
  saying_ = loop_.at(when, say);
}

void NodeMember::on_message(const meet::Message& message) {
  if (const auto* answer = std::get_if<meet::StoreAnswer>(&message)) {
    if (desk_ != nullptr) desk_->answer(*answer);
    return;
  }
  if (const auto* waiting = std::get_if<meet::Waiting>(&message)) {
    agent_.succession().learn(*waiting);
    if (speaks()) say_reason(waiting->reason);
    return;
  }
  if (const auto* room = std::get_if<meet::MakeRoom>(&message)) {
    const bool runs = attempt_ != nullptr && room->generation == generation_;
    if (!runs || !attempt_->make_room()) agent_.line().send(meet::NotInSteps{room->generation});
    return;
  }
  if (std::holds_alternative<meet::Report>(message)) report_taken_ = true;
  saying_ = {};
  if (const auto* refused = std::get_if<meet::Refused>(&message)) refused_ = refused->reason;
  if (const auto* start = std::get_if<meet::Start>(&message)) {
    start_ = *start;
    agent_.succession().learn(*start);
    end_now_ = blamed_ = false;  // here, for what ends that generation may come in the same breath
  }
  if (const auto* outcome = std::get_if<meet::Outcome>(&message)) {
    outcome_ = *outcome;
    end_now_ = end_now_ || attempt_ != nullptr;  // the hosting agent was asked to end in the middle of it
    end_attempt();
  }
  if (const auto* gives_up = std::get_if<meet::GivesUp>(&message)) {
    gives_up_ = true;
    return lose(gives_up->reason, Parting::closed);
  }
  const auto* end = std::get_if<meet::EndNow>(&message);
  if (end == nullptr || end->generation != (start_ ? start_->generation : generation_)) return;
  end_now_ = true;
  end_attempt();
}

void NodeMember::lose(const std::string& why, Parting how) {
  if (refused_ || lost_ || over_ || (outcome_ && !outcome_->again)) return;  // it has said all
  lost_ = why;
  kill_at_ =
      how == Parting::closed ? std::min(agent_.line().lease(), Clock::now() + kClosedGrace) : agent_.line().lease();
  agent_.succession().on_loss(how, agent_.line().heard_at());
  const std::string lost = "the hosting agent (" + agent_.endpoint() + ") is lost: " + one_line(why);
  console_.say("lockstep: " +
               (gives_up_          ? "this node ends its workers: " + one_line(why)
                : agent_.is_here() ? "this agent hosts, and was stopped or too slow: " + one_line(why) +
                                         "; it ends its workers, for the others may go on without it"
                : may_hand_over()
                    ? lost + "; the other nodes end their workers, and go on where most of them meet"
                    : lost + "; all nodes end their workers: start the same command again on each of them") +
               "\n");
  end_now_ = true;
  end_attempt();
}

// Told to end; killed when another generation might start elsewhere.
void NodeMember::end_attempt() {
  if (attempt_ == nullptr || !end_now_) return;
  const bool at_once = lost_ && Clock::now() >= kill_at_;
  if (lost_ && !at_once) lease_end_ = loop_.at(kill_at_, [this] { end_attempt(); });
  attempt_->end_for_others(at_once);
}

Meeting NodeMember::meet(const std::function<int()>& stop_signal) {
  if (generation_ > 0) {
    waits_since_ = Clock::now();
    if (!lost_ && !refused_ && stop_signal() == 0) agent_.line().send(meet::Ready{});
  }
  do {
    loop_.run_until([&] { return start_ || refused_ || lost_ || outcome_ || stop_signal() != 0; });
  } while (!refused_ && lost_ && hand_over(stop_signal));
  if (refused_) throw UsageError("run: " + one_line(*refused_));
  if (const int signal = stop_signal(); signal != 0) {
    agent_.dismiss(128 + signal,
                   "lockstep: the hosting agent (" + own_host_ + ") was ended by " + signal_name(signal) + "\n");
    // The answer is waited for: who closes a connection with something unread in it takes back what is on the way.
    const std::int64_t generation = start_ ? start_->generation : generation_;
    if (!agent_.is_here() && generation > 0 && !lost_ && !let_go_) {
      leave(agent_.line(), generation, signal, start_.has_value());
      loop_.run_until([this] { return outcome_ || lost_; }, Clock::now() + kFarewell);
    }
    return {.over = 128 + signal};
  }
  if (lost_) return {.over = kExitFailure};
  if (outcome_) {
    if (speaks()) console_.say(outcome_->text);
    return {.over = int(outcome_->code)};
  }
  const meet::Start start = *std::exchange(start_, std::nullopt);
  generation_ = start.generation;
  report_wanted_ = start.report;
  run_id_ = start.run_id;
  desk_ = std::make_unique<StoreDesk>(  // the store is the hosting agent's
      loop_, StoreDesk::Events{.ask =
                                   [this](meet::StoreAsk ask) {
                                     ask.generation = generation_;
                                     agent_.line().send(ask);
                                   },
                               .forget = [this](const meet::StoreForget& forget) { agent_.line().send(forget); }});
  return {.place = {.rank = int(start.rank),
                    .nodes = int(start.nodes),
                    .first_rank = int(start.first_rank),
                    .ranks_after = int(start.ranks_after)},
          .master_addr = start.master_addr,
          .master_port = int(start.master_port),
          .restart_count = int(start.restart_count),
          .run_id = start.run_id,
          .store = desk_->name(),
          .generation = generation_,
          .over = {}};
}

void NodeMember::attend(RunningAttempt* attempt) {
  attempt_ = attempt;
  end_attempt();  // it came while they were started
}

void NodeMember::on_stop(int signal) {
  blamed_ = asked_to_end_ = true;
  agent_.line().send(meet::Stopping{.generation = generation_, .signal = signal, .let_go = let_go_});
}

void NodeMember::on_failure(const Verdict& verdict, const std::string& report) {
  agent_.line().keep_alive();  // this agent may have been stopped, and its workers ended for that
  if (lost_ || std::exchange(blamed_, true)) return;
  const double end = verdict.still_running ? wall_clock() : verdict.end.when;
  agent_.line().send(
      meet::Failed{.generation = generation_,
                   .kind = std::int64_t(kind_of(verdict)),
                   .when = agent_.line().host_time(end - (was_killed(verdict.end) ? kSlowDeath : 0)),
                   .error = agent_.line().clock_error(),
                   .code = verdict.code,
                   .text = report.empty() ? report_of_bad_input(verdict, own_host_, plan_.node.first_rank) : report});
}

Decision NodeMember::agree(AttemptResult& result, const AttemptFacts& facts, const std::function<int()>& stop_signal) {
  desk_.reset();
  if (outcome_ && outcome_->generation != generation_) outcome_.reset();
  if (!lost_ && !outcome_) {
    const bool failed = facts.code != kExitDone && facts.code != kExitStopped;
    // What kept an attempt from running or going on was no worker's failure.
    const std::string& why = result.start_failure.empty() ? result.record.launcher_failure : result.start_failure;
    if (failed && !why.empty() && !blamed_ && !end_now_)
      agent_.line().send(
          meet::Failed{.generation = generation_,
                       .kind = std::int64_t(meet::FailureKind::told),
                       .when = agent_.line().host_time(result.record.started),
                       .error = agent_.line().clock_error(),
                       .code = result.code,
                       .text = "lockstep: the workers on " + own_host_ + " did not run: " + one_line(why) + "\n"});
    agent_.line().send(meet::Done{.generation = generation_,
                                  .code = facts.code,
                                  .signal = result.stop_signal,
                                  .never_ran = facts.never_ran,
                                  .left_behind = facts.left_behind,
                                  .bad_input = facts.bad_input,
                                  .port_was_taken = facts.port_was_taken,
                                  .joined = facts.joined,
                                  .fallen = std::ranges::count_if(result.record.ends, &End::failed),
                                  .uptime = facts.uptime.count()});
    const auto answered = [this] { return outcome_ || lost_; };
    loop_.run_until([&] { return answered() || stop_signal() != 0; });
    if (!answered()) {
      on_stop(stop_signal());
      loop_.run_until(answered, Clock::now() + plan_.grace + kFarewell);
    }
  }
  if (!outcome_ && lost_) return go_on_without(result, stop_signal);
  if (!outcome_) {  // asked to end, and the others have not
    result.stop_signal = stop_signal();
    result.code = 128 + result.stop_signal;
    return {};
  }
  const meet::Outcome outcome = *std::exchange(outcome_, std::nullopt);
  over_ = !outcome.again;
  agent_.succession().learn(outcome);
  if (speaks() && !(outcome.to_blame && facts.bad_input)) console_.say(outcome.text);  // its worker has said it
  adopt(outcome, result);
  return {.next = !outcome.again     ? Next::finish
                  : outcome.new_port ? Next::new_port
                  : outcome.counts   ? Next::restart
                                     : Next::regroup,
          .delay = milliseconds(outcome.delay),
          .why_not = outcome.why_not,
          .restarts = int(outcome.restarts)};
}

// Sent to the end: who closes a connection with something unread in it takes back what is on the way.
std::string NodeMember::report(const std::function<std::string()>& own, bool wanted,
                               const std::function<int()>& stop_signal) {
  if (agent_.is_here()) {
    if (!wanted) return "";
    const auto complete = [&] { return agent_.reports().complete() || stop_signal() != 0; };
    if (over_ || refused_) loop_.run_until(complete, Clock::now() + kReports);
    return report_of_all(own(), agent_.reports().take_all());
  }
  if (!wanted && !report_wanted_) return "";
  std::string text = own();
  if (!report_wanted_ || lost_) return text;
  for (const meet::Report& part : parts_of_report(text)) agent_.line().send(part);
  loop_.run_until([&] { return report_taken_ || !agent_.line().open() || stop_signal() != 0; },
                  Clock::now() + kReportTaken);
  return text;
}

}  // namespace lockstep::launch
