#include "lockstep/launch/nodes/host.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/control_page.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/agent/port.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/launch/report/verdict.h"

namespace lockstep::launch {

namespace meet = rendezvous;
using std::chrono::milliseconds;

namespace {

// Reasons to wait are told so much later than the first change: of a thousand who come at once each would be another.
constexpr milliseconds kReasonsTogether{200};

Blame loss_of(const meet::Node& node, double when, const std::string& why) {
  return {
      .failure = {.kind = meet::FailureKind::node_lost, .when = when},
      .node = node.id,
      .code = kExitFailure,
      .text = "lockstep: node " + std::to_string(node.last_rank) + " (host " + node.host + ") is lost: " + why + "\n",
      .host = node.host};
}

}  // namespace

Host::Host(EventLoop& loop, HostSettings settings, base::UniqueFd listener)
    : loop_(loop),
      settings_(std::move(settings)),
      reception_(loop, std::move(listener),
                 {.keep_alive = settings_.nodes.keep_alive,
                  .silence = settings_.nodes.silence(),
                  .accept_channel = settings_.accept_channel},
                 {.message = [this](std::uint64_t id, const meet::Message& message) { on_message(id, message); },
                  .gone = [this](std::uint64_t id, const std::string& why, Parting how,
                                 Clock::time_point heard) { on_gone(id, why, how, heard); }}),
      store_([this](std::uint64_t id, const meet::StoreAnswer& answer) { reception_.send(id, answer); }) {}

base::UniqueFd Host::own_seat() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    throw_errno("launcher: socketpair");
  base::UniqueFd other(ends[1]);
  own_ = reception_.add(base::UniqueFd(ends[0]), std::make_unique<PlainChannel>(ends[0]), /*own=*/true);
  return other;
}

void Host::on_message(std::uint64_t id, const meet::Message& message) {
  const auto seat = seats_.find(id);
  const auto* join = std::get_if<meet::Join>(&message);
  if (seat == seats_.end() && join != nullptr) return admit(id, *join);
  if (seat != seats_.end() && store_.take(id, message)) return;
  const auto* report = std::get_if<meet::Report>(&message);
  if (seat != seats_.end() && report != nullptr && settings_.reports != nullptr) {
    if (settings_.reports->take(id, *report)) reception_.send(id, meet::Report{.part = {}, .last = true});
    return;
  }
  std::visit(
      [&](const auto& typed) {
        if constexpr (requires { on(seat->second, typed); })
          if (seat != seats_.end()) return on(seat->second, typed);
        reception_.drop(id, "it says what is not its turn to say");
      },
      message);
}

void Host::admit(std::uint64_t id, const meet::Join& join) {
  const meet::Application application{.version = join.version,
                                      .run_id = join.run_id,
                                      .nnodes = join.nnodes,
                                      .backend = join.backend,
                                      .host = one_line(join.host),
                                      .workers = int(std::clamp<std::int64_t>(join.workers, 1, base::kMaxLocalRanks)),
                                      .wanted_rank = int(std::clamp<std::int64_t>(join.wanted_rank, -1, 1'000'000))};
  const meet::Situation now = situation();
  std::string why = meet::refusal(application, settings_.own, settings_.nodes.limits, now.nodes);
  if (finished_) why = "the job has ended";
  if (!why.empty()) {
    reception_.send(id, meet::Refused{why});
    return reception_.drop(id, why);
  }
  const auto before = ranks_of_hosts_.find(application.host);
  seats_[id].node = {.id = id,
                     .host = application.host,
                     .workers = application.workers,
                     .wanted_rank = application.wanted_rank,
                     .last_rank = before == ranks_of_hosts_.end() ? -1 : before->second,
                     .ready = true,
                     .asked = now.now};
  reception_.trust(id);
  consider();
}

void Host::on(Seat& seat, const meet::Ready&) {
  seat.node.ready = true;
  seat.told.clear();
  consider();
}

void Host::on(Seat& seat, const meet::Failed& failed) {
  if (!running_ || failed.generation != generation_ || !seat.node.member || seat.done) return;
  const auto kind = std::clamp<std::int64_t>(failed.kind, 0, std::int64_t(meet::FailureKind::connection));
  blames_.push_back({.failure = {.kind = meet::FailureKind(kind), .when = failed.when, .error = failed.error},
                     .node = seat.node.id,
                     .code = int(failed.code),
                     .text = failed.text,
                     .host = seat.node.host});
  end_all();
}

void Host::on(Seat& seat, const meet::Stopping& stopping) {
  if (!running_ || stopping.generation != generation_ || !seat.node.member) return;
  seat.stops = true;
  if (stopping.let_go && seat.node.id != own_) {  // as if the node were lost; the others may go on
    if (seat.succeeded()) return;
    blames_.push_back(loss_of(seat.node, wall_clock(), "the connection to what has started it is gone"));
    return end_all();
  }
  if (!stop_) stop_ = Stop{.signal = int(stopping.signal), .host = seat.node.host};
  end_all();
}

void Host::on(Seat& seat, const meet::Done& done) {
  if (!running_ || done.generation != generation_ || !seat.node.member || seat.done) return;
  seat.done = done;
  conclude_when_all_done();
}

void Host::on_gone(std::uint64_t id, const std::string& why, Parting how, Clock::time_point heard) {
  const auto found = seats_.find(id);
  if (found == seats_.end()) return;
  const Seat seat = std::move(found->second);
  seats_.erase(found);
  store_.leave(id);
  if (settings_.reports != nullptr) settings_.reports->leave(id, /*early=*/!finished_);
  // Its own limit counts from when it sent what we heard last. Where the kernel says that it has closed the connection
  // it has seen that end, too, and kills its workers within kClosedGrace, if it lives. Who has said that all of them
  // have ended has none.
  if (seat.node.member && !(seat.done && !seat.done->left_behind)) {
    const auto limit = how == Parting::cut ? heard + settings_.nodes.silence() : Clock::now();
    not_before_ = std::max(not_before_, std::chrono::ceil<milliseconds>(limit - origin_) + kCutOffMargin);
  }
  if (running_ && seat.node.member && !seat.succeeded()) {
    // As with a worker that was killed: its peers see their connections break before we see the node's.
    const double last = wall_clock() - std::chrono::duration<double>(Clock::now() - heard).count() - kSlowDeath;
    blames_.push_back(loss_of(seat.node, last, why));
    end_all();
  }
  conclude_when_all_done();
  consider();
}

meet::Situation Host::situation() const {
  meet::Situation situation{.now = std::chrono::duration_cast<milliseconds>(Clock::now() - origin_),
                            .since = since_,
                            .not_before = not_before_,
                            .running = running_,
                            .first = generation_ == 0,
                            .nodes = {}};
  for (const auto& [id, seat] : seats_) {
    situation.nodes.push_back(seat.node);
    situation.nodes.back().left_out_until = record_.left_out_until(seat.node.host);
  }
  return situation;
}

void Host::consider() {
  if (finished_ || ending_) return;
  const meet::Situation now = situation();
  if (now.nodes.empty()) return;  // the hosting agent itself has not asked yet
  const meet::Decision decision = meet::decide(now, settings_.nodes.limits);
  if (decision.step == meet::Step::start) return start(decision.ranks);
  if (decision.step == meet::Step::end) {
    finished_ = true;
    for (const auto& [id, seat] : seats_) reception_.send(id, meet::Refused{decision.reason});
    return reception_.shut();
  }
  if (decision.step == meet::Step::restart) {
    newcomer_ = decision.reason;
    return end_all();
  }
  again_ = {};
  if (decision.again != meet::Time::max()) again_ = loop_.at(origin_ + decision.again, [this] { consider(); });
  reason_ = decision.reason;
  if (std::exchange(tells_, true)) return;
  // Who is let in must hear a word before he takes us for lost.
  telling_ = loop_.at(Clock::now() + std::min(kReasonsTogether, settings_.nodes.silence() / 4), [this] {
    tells_ = false;
    if (finished_ || ending_) return;
    for (auto& [id, seat] : seats_) {
      if ((running_ && seat.node.member) || seat.told == reason_) continue;
      seat.told = reason_;
      reception_.send(id, meet::Waiting{reason_});
    }
  });
}

void Host::start(const std::vector<std::uint64_t>& ranks) {
  for (auto& [id, seat] : seats_) {
    seat.node.member = seat.stops = false;
    seat.done.reset();
    seat.told.clear();
  }
  ++generation_;
  running_ = true;
  store_.begin(generation_);
  again_ = {};
  ranks_of_hosts_.clear();
  int world = 0;
  for (const std::uint64_t id : ranks) world += seats_.at(id).node.workers;
  meet::Start start{.generation = generation_,
                    .restart_count = history_.restarts,
                    .nodes = std::int64_t(ranks.size()),
                    .master_port = free_port(),
                    .master_addr = settings_.master_addr,
                    .run_id = settings_.run_id,
                    .report = settings_.reports != nullptr};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    Seat& seat = seats_.at(ranks[rank]);
    seat.node.member = true;
    seat.node.ready = false;
    seat.node.last_rank = int(rank);
    ranks_of_hosts_.emplace(seat.node.host, int(rank));
    start.rank = std::int64_t(rank);
    if (settings_.reports != nullptr && rank > 0)
      settings_.reports->expect(seat.node.id,
                                {.host = seat.node.host, .rank = int(rank), .workers = seat.node.workers});
    start.ranks_after = world - start.first_rank - seat.node.workers;
    reception_.send(ranks[rank], start);
    start.first_rank += seat.node.workers;
  }
  consider();  // tells the spares
}

void Host::end_all() {
  if (std::exchange(ending_, true)) return;
  for (const auto& [id, seat] : seats_)
    if (seat.node.member && !seat.done) reception_.send(id, meet::EndNow{generation_});
}

// Everybody hears how the generation has ended; who waits outside only when no other follows.
void Host::conclude_when_all_done() {
  if (!running_) return;
  EndedGeneration ended{.number = generation_,
                        .blames = std::exchange(blames_, {}),
                        .stop = stop_,
                        .min_nodes = settings_.nodes.limits.min_nodes,
                        .newcomer = newcomer_};
  for (const auto& [id, seat] : seats_) {
    if (seat.node.member && !seat.done) {
      blames_ = std::move(ended.blames);
      return;
    }
    const bool stops = seat.stops || (seat.done && seat.done->signal != 0);
    if (id == own_) ended.host_stops = stops;
    if (!stops) ++ended.others;
    if (seat.node.member) ended.nodes.push_back({.id = id, .done = *seat.done});
  }
  meet::Outcome outcome = outcome_of(ended, history_, settings_.max_restarts, settings_.no_restart_codes);
  const auto blamed = std::ranges::find(ended.blames, std::uint64_t(outcome.blamed), &Blame::node);
  const meet::Limits& limits = settings_.nodes.limits;
  if (outcome.counts && blamed != ended.blames.end() && blamed->node != own_)
    if (const std::string why = record_.failed(blamed->host, situation().now);
        !why.empty() && limits.min_nodes < limits.max_nodes)  // or the job never goes on without it
      outcome.text += "lockstep: " + why + "\n";
  running_ = ending_ = false;
  finished_ = !outcome.again;
  since_ = situation().now;
  newcomer_.clear();
  stop_.reset();
  for (const auto& [id, seat] : seats_) {
    meet::Outcome own = outcome;
    own.to_blame = outcome.blamed == std::int64_t(id);
    if (seat.stops || (seat.done && seat.done->signal != 0)) own.again = false;
    if (seat.node.member || finished_) reception_.send(id, own);
  }
  if (finished_) reception_.shut();  // the agent may show logs for long, and the next job meets at the same port
}

void Host::dismiss(int code, const std::string& text) {
  finished_ = true;
  if (running_) end_all();
  for (const auto& [id, seat] : seats_)
    reception_.send(id, meet::Outcome{.generation = generation_, .code = code, .text = text});
}

}  // namespace lockstep::launch
