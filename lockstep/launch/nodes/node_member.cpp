#include "lockstep/launch/nodes/node_member.h"

#include <algorithm>
#include <cerrno>
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

// Debian's /etc/hosts gives a machine's own name an address that no other machine reaches.
rendezvous::SocketAddress reachable(const rendezvous::SocketAddress& address, const NodesSettings& settings) {
  const std::string& name = settings.host;
  const bool means_here = name == "localhost" || name == "::1" || name.starts_with("127.");
  if (!address.is_loopback() || means_here) return address;
  if (!settings.local_addr.empty()) return rendezvous::resolve("run: --local-addr", settings.local_addr, settings.port);
  throw UsageError("run: --rdzv-endpoint " + name +
                   " is an address of this machine alone here (see /etc/hosts), which no other node reaches: give this "
                   "node --local-addr ADDRESS, or localhost where all agents are on one machine");
}

meet::Join application(const Plan& plan, const std::string& host) {
  return {.version = LOCKSTEP_VERSION,
          .run_id = plan.run_id,
          .nnodes = to_string(plan.nodes->limits),
          .backend = plan.nodes->backend,
          .host = host,
          .workers = plan.workers,
          .wanted_rank = plan.nodes->node_rank};
}

}  // namespace

NodeMember::NodeMember(const Plan& plan, EventLoop& loop, base::Outlet& console, Reaper& reaper)
    : plan_(plan),
      settings_(*plan.nodes),
      loop_(loop),
      console_(console),
      reaper_(reaper),
      own_host_(host_name()),
      address_(rendezvous::resolve("run: --rdzv-endpoint", settings_.host, settings_.port)),
      line_(loop, settings_, application(plan, own_host_),
            {.message = [this](const meet::Message& message) { on_message(message); },
             .waits = [this](const std::string& why) { say_reason(why); },
             .refused = [this](const std::string& why) { refused_ = why; },
             .lost = [this](const std::string& why, Parting how) { lose(why, how); },
             .leased =
                 [this](Clock::time_point until) {
                   reaper_.kill_after(std::chrono::ceil<milliseconds>(until - Clock::now()));
                 }}) {
  rendezvous::SocketAddress local;
  if (!settings_.local_addr.empty()) local = rendezvous::resolve("run: --local-addr", settings_.local_addr, 0);
  const bool beyond = !address_.is_loopback() || (local.length > 0 && !local.is_loopback());
  if (beyond && settings_.secret_file.empty() && !settings_.insecure)
    throw UsageError(
        "run: --rdzv-endpoint " + settings_.host +
        " is beyond this machine, and anybody could join: --secret-file FILE (lockstep secret new > FILE), "
        "or --insecure in a network that you trust");
  if (!settings_.secret_file.empty()) tls_ = std::make_unique<Tls>(read_secret(settings_.secret_file));
  listen();
  if (host_ != nullptr) {
    base::UniqueFd seat = host_->own_seat();
    const int fd = seat.get();
    line_.use(std::move(seat), std::make_unique<PlainChannel>(fd));
  } else {
    line_.connect(address_, local, [this](int fd) -> std::unique_ptr<Channel> {
      if (tls_ == nullptr) return std::make_unique<PlainChannel>(fd);
      return tls_->connect(fd);
    });
  }
}

// The others, if this agent hosts, hear how the job has ended.
NodeMember::~NodeMember() {
  if (host_ != nullptr) loop_.run_until([this] { return host_->settled(); }, Clock::now() + kFarewell);
}

void NodeMember::listen() {
  if (!settings_.is_host.value_or(!settings_.limits.fixed_ranks || settings_.node_rank == 0)) return;
  rendezvous::Listening listening = rendezvous::listen_at(reachable(address_, settings_));
  if (!listening.fd) {
    const bool must = settings_.is_host.value_or(settings_.limits.fixed_ranks);
    if (!must) return;  // another agent's: this one joins it
    throw UsageError("run: cannot host at --rdzv-endpoint " + line_.endpoint() + " (" +
                     (settings_.is_host ? "is_host" : "--node-rank 0") + "): " +
                     (listening.error == EADDRINUSE
                          ? "the port is taken, by another host of this job or by another program"
                          : "the address is not one of this machine's (" + own_host_ + ")"));
  }
  HostSettings settings{.nodes = settings_,
                        .own = {.version = LOCKSTEP_VERSION,
                                .run_id = plan_.run_id,
                                .nnodes = to_string(settings_.limits),
                                .backend = settings_.backend,
                                .host = own_host_},
                        .run_id = plan_.run_id.empty() ? random_id() : plan_.run_id,
                        .master_addr = settings_.local_addr.empty() ? settings_.host : settings_.local_addr,
                        .max_restarts = plan_.max_restarts,
                        .no_restart_codes = plan_.no_restart_codes,
                        .reports = plan_.report.empty() ? nullptr : &reports_,
                        .accept_channel = [this](int fd) -> std::unique_ptr<Channel> {
                          if (tls_ == nullptr) return std::make_unique<PlainChannel>(fd);
                          return tls_->accept(fd);
                        }};
  host_ = std::make_unique<Host>(loop_, std::move(settings), std::move(listening.fd));
}

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
    if (speaks()) say_reason(waiting->reason);
    return;
  }
  if (std::holds_alternative<meet::Report>(message)) report_taken_ = true;
  saying_ = {};
  if (const auto* refused = std::get_if<meet::Refused>(&message)) refused_ = refused->reason;
  if (const auto* start = std::get_if<meet::Start>(&message)) {
    start_ = *start;
    end_now_ = blamed_ = false;  // here, for what ends that generation may come in the same breath
  }
  if (const auto* outcome = std::get_if<meet::Outcome>(&message)) {
    outcome_ = *outcome;
    end_now_ = end_now_ || attempt_ != nullptr;  // the hosting agent was asked to end in the middle of it
    end_attempt();
  }
  const auto* end = std::get_if<meet::EndNow>(&message);
  if (end == nullptr || end->generation != (start_ ? start_->generation : generation_)) return;
  end_now_ = true;
  end_attempt();
}

void NodeMember::lose(const std::string& why, Parting how) {
  if (refused_ || lost_ || over_ || (outcome_ && !outcome_->again)) return;  // it has said all
  lost_ = why;
  kill_at_ = how == Parting::closed ? std::min(line_.lease(), Clock::now() + kClosedGrace) : line_.lease();
  console_.say("lockstep: the hosting agent (" + line_.endpoint() + ") is lost: " + one_line(why) +
               "; all nodes end their workers: start the same command again on each of them\n");
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
    if (!lost_ && !refused_) line_.send(meet::Ready{});
  }
  outcome_.reset();
  loop_.run_until([&] { return start_ || refused_ || lost_ || outcome_ || stop_signal() != 0; });
  if (refused_) throw UsageError("run: " + one_line(*refused_));
  if (const int signal = stop_signal(); signal != 0) {
    if (host_ != nullptr)
      host_->dismiss(128 + signal,
                     "lockstep: the hosting agent (" + own_host_ + ") was ended by " + signal_name(signal) + "\n");
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
  open_desk();
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

// The store is the hosting agent's.
void NodeMember::open_desk() {
  const auto ask = [this](const meet::StoreAsk& ask) {
    meet::StoreAsk dated = ask;
    dated.generation = generation_;
    line_.send(dated);
  };
  desk_ = std::make_unique<StoreDesk>(
      loop_, StoreDesk::Events{.ask = ask, .forget = [this](const meet::StoreForget& forget) { line_.send(forget); }});
}

void NodeMember::attend(RunningAttempt* attempt) {
  attempt_ = attempt;
  end_attempt();  // it came while they were started
}

void NodeMember::on_stop(int signal) {
  blamed_ = true;
  line_.send(meet::Stopping{.generation = generation_, .signal = signal, .let_go = let_go_});
}

void NodeMember::on_failure(const Verdict& verdict, const std::string& report) {
  line_.keep_alive();  // this agent may have been stopped, and its workers ended for that
  if (lost_ || std::exchange(blamed_, true)) return;
  const double end = verdict.still_running ? wall_clock() : verdict.end.when;
  line_.send(meet::Failed{.generation = generation_,
                          .kind = std::int64_t(kind_of(verdict)),
                          .when = line_.host_time(end - (was_killed(verdict.end) ? kSlowDeath : 0)),
                          .error = line_.clock_error(),
                          .code = verdict.code,
                          .text = report});
}

Decision NodeMember::agree(AttemptResult& result, const AttemptFacts& facts, const std::function<int()>& stop_signal) {
  desk_.reset();
  if (outcome_ && outcome_->generation != generation_) outcome_.reset();
  if (!lost_ && !outcome_) {
    const bool failed = facts.code != kExitDone && facts.code != kExitStopped;
    if (failed && !blamed_ && !end_now_) {  // what kept an attempt from running or going on was no worker's failure
      const std::string& why = result.start_failure.empty() ? result.record.launcher_failure : result.start_failure;
      line_.send(
          meet::Failed{.generation = generation_,
                       .kind = std::int64_t(meet::FailureKind::told),
                       .when = line_.host_time(result.record.started),
                       .error = line_.clock_error(),
                       .code = result.code,
                       .text = "lockstep: the workers on " + own_host_ + " did not run: " + one_line(why) + "\n"});
    }
    line_.send(meet::Done{.generation = generation_,
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
  if (!outcome_) {
    if (lost_) result.code = kExitFailure;
    return {};
  }
  const meet::Outcome outcome = *std::exchange(outcome_, std::nullopt);
  over_ = !outcome.again;
  adopt(outcome, result);
  return {.next = !outcome.again     ? Next::finish
                  : outcome.new_port ? Next::new_port
                  : outcome.counts   ? Next::restart
                                     : Next::regroup,
          .delay = milliseconds(outcome.delay),
          .why_not = outcome.why_not,
          .restarts = int(outcome.restarts)};
}

void NodeMember::adopt(const meet::Outcome& outcome, AttemptResult& result) {
  if (speaks()) console_.say(outcome.text);
  result.code = int(outcome.code);
  if (result.stop_signal == 0) result.stop_signal = int(outcome.again ? 0 : outcome.signal);
  result.record.first_elsewhere = outcome.to_blame ? "" : outcome.text;
  if (!outcome.to_blame) result.record.first.reset();
}

// Sent to the end: who closes a connection with something unread in it takes back what is on the way.
std::string NodeMember::report(const std::function<std::string()>& own, bool wanted,
                               const std::function<int()>& stop_signal) {
  if (host_ != nullptr) {
    if (!wanted) return "";
    const auto complete = [&] { return reports_.complete() || stop_signal() != 0; };
    if (over_ || refused_) loop_.run_until(complete, Clock::now() + kReports);
    return report_of_all(own(), reports_.take_all());
  }
  if (!wanted && !report_wanted_) return "";
  std::string text = own();
  if (!report_wanted_ || lost_) return text;
  for (const meet::Report& part : parts_of_report(text)) line_.send(part);
  loop_.run_until([&] { return report_taken_ || !line_.open() || stop_signal() != 0; }, Clock::now() + kReportTaken);
  return text;
}

}  // namespace lockstep::launch
