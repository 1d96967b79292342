#include "lockstep/launch/nodes/host.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/control_page.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/agent/port.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/launch/report/verdict.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launch {

namespace meet = rendezvous;
using std::chrono::milliseconds;

namespace {

// Reasons to wait are told so much later than the first change: of a thousand who come at once each would be another.
constexpr milliseconds kReasonsTogether{200};
// Said to those who wait meanwhile.
constexpr const char* kEnding = "the workers of the last generation are ending";
// The longest address that somebody may be given as that of a hosting agent.
constexpr std::size_t kLongestAddress = 64;

Blame loss_of(const meet::Node& node, double when, const std::string& why) {
  return {
      .failure = {.kind = meet::FailureKind::node_lost, .when = when},
      .node = node.id,
      .code = kExitFailure,
      .text = "lockstep: node " + std::to_string(node.last_rank) + " (host " + node.host + ") is lost: " + why + "\n",
      .host = node.host};
}

// Who is refused says "run: " himself.
std::string without_run(const std::string& why) { return why.starts_with("run: ") ? why.substr(5) : why; }

// Where the nodes of rank 1, 2, ... would host; none where not enough would be left to go on, or no restart is.
std::vector<std::string> heirs(std::vector<std::string> addresses, const HostSettings& settings, int restarts) {
  const int left = int(addresses.size());
  addresses.resize(std::min(addresses.size(), std::size_t(meet::kMostHeirs)));
  const bool none = std::ranges::all_of(addresses, &std::string::empty);
  const bool enough = left >= 2 && left >= settings.nodes.limits.min_nodes;
  if (none || !enough || !settings.has_heirs || restarts >= settings.max_restarts) return {};
  return addresses;
}

// Those who wait.
void tell(const meet::Waiting& waiting, Reception& reception, auto& seats, bool running) {
  for (auto& [id, seat] : seats) {
    if ((running && seat.node.member) || seat.told == waiting.reason) continue;
    seat.told = waiting.reason;
    reception.send(id, waiting);
  }
}

// Those who have workers in the generation that runs.
void tell_members(const meet::Message& message, Reception& reception, const auto& seats) {
  for (const auto& [id, seat] : seats)
    if (seat.node.member && !seat.done) reception.send(id, message);
}

}  // namespace

Host::Host(EventLoop& loop, HostSettings settings, base::UniqueFd listener, base::UniqueFd own)
    : loop_(loop),
      settings_(std::move(settings)),
      reception_(loop, std::move(listener),
                 {.keep_alive = settings_.nodes.keep_alive,
                  .silence = settings_.nodes.silence(),
                  .accept_channel = settings_.accept_channel},
                 {.message = [this](std::uint64_t id, const meet::Message& message) { on_message(id, message); },
                  .gone = [this](std::uint64_t id, const std::string& why, Parting how,
                                 Clock::time_point heard) { on_gone(id, why, how, heard); },
                  .ping =
                      [this](std::uint64_t id, const meet::Ping& ping) {
                        following_.on_ping(id, ping);
                        if (!running_ && settings_.inherited) consider();
                        return following_.lease(running_);
                      },
                  .notes = settings_.says}),
      following_(settings_.nodes, settings_.inherited),
      store_([this](std::uint64_t id, const meet::StoreAnswer& answer) { reception_.send(id, answer); }) {
  const int fd = own.get();
  own_ = reception_.add(std::move(own), std::make_unique<PlainChannel>(fd), /*own=*/true);
  if (!settings_.inherited) return;
  generation_ = settings_.inherited->last.generation;
  history_.restarts = settings_.inherited->restarts;
}

void Host::on_message(std::uint64_t id, const meet::Message& message) {
  const auto seat = seats_.find(id);
  const auto* join = std::get_if<meet::Join>(&message);
  if (seat == seats_.end() && join != nullptr) return admit(id, *join);
  if (seat != seats_.end() && store_.take(id, message)) return;
  if (const auto* none = std::get_if<meet::NotInSteps>(&message); seat != seats_.end() && none != nullptr) {
    if (running_ && none->generation == generation_ && !newcomer_.empty()) end_all();
    return;
  }
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
  const meet::Application application{
      .version = join.version,
      .run_id = join.run_id,
      .nnodes = join.nnodes,
      .backend = join.backend,
      .host = one_line(join.host),
      .workers = int(std::clamp<std::int64_t>(join.workers, 1, base::kMaxLocalRanks)),
      .wanted_rank = int(std::clamp<std::int64_t>(join.wanted_rank, -1, 1'000'000)),
      .keep_alive = meet::Time(std::clamp<std::int64_t>(join.keep_alive, 0, 86'400'000)),
      .misses = int(std::clamp<std::int64_t>(join.misses, 0, 1'000'000))};
  const meet::Situation now = situation();
  std::string why = meet::refusal(application, settings_.own, settings_.nodes.limits, now.nodes);
  if (finished_) why = "the job has ended";
  if (why.empty() && join.generation != 0) why = following_.take_survivor(id, join, id == own_);
  if (!why.empty()) {
    reception_.send(id, meet::Refused{why});
    return reception_.drop(id, why);
  }
  if (join.generation != 0) {
    const milliseconds may_run(std::clamp<std::int64_t>(join.may_run, 0, settings_.nodes.hand_over().count()));
    not_before_ = std::max(not_before_, following_.now() + may_run + kCutOffMargin);
  }
  Seat& seat = seats_[id];
  const auto before = ranks_of_hosts_.find(application.host);
  seat.node = {.id = id,
               .host = application.host,
               .workers = application.workers,
               .wanted_rank = application.wanted_rank,
               .last_rank = before == ranks_of_hosts_.end() ? -1 : before->second,
               .ready = true,
               .asked = now.now};
  if (join.address.size() <= kLongestAddress && meet::parse_address(join.address)) seat.address = join.address;
  if (settings_.inherited && join.generation == generation_ && !running_) {  // one of those who are waited for
    seat.node.member = true;
    seat.node.last_rank = int(std::clamp<std::int64_t>(join.rank, -1, settings_.inherited->last.nodes - 1));
    seat.done.emplace();
  }
  if (const int fd = reception_.trust(id); id != own_ && settings_.meets) settings_.meets(fd);
  if (ending_) tell({.reason = kEnding, .generation = generation_}, reception_, seats_, running_);
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
  if (stopping.generation != generation_ || !seat.node.member) return;
  if (finished_ && !running_) return;
  seat.stops = true;
  following_.majority().resigns(seat.node.id);
  if (!running_) {  // no generation's end tells of it
    seat.node.ready = false;
    const auto others = std::ranges::count_if(seats_, [](const auto& entry) { return !entry.second.stops; });
    meet::Outcome outcome = outcome_of_leaving({.signal = int(stopping.signal), .host = seat.node.host}, int(others),
                                               settings_.nodes.limits.min_nodes);
    outcome.generation = generation_;
    if (!std::exchange(outcome.again, false)) return finish(outcome);
    if (settings_.says) settings_.says("the agent on " + seat.node.host + " was ended: the others go on without it");
    reception_.send(seat.node.id, outcome);
    return reception_.drop(seat.node.id, "its agent was asked to end");
  }
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
  if (done.signal != 0) following_.majority().resigns(seat.node.id);
  conclude_when_all_done();
}

void Host::on_gone(std::uint64_t id, const std::string& why, Parting how, Clock::time_point heard) {
  const auto found = seats_.find(id);
  if (found == seats_.end()) return;
  const Seat seat = std::move(found->second);
  seats_.erase(found);
  store_.leave(id);
  following_.majority().goes(id);
  if (settings_.reports != nullptr) settings_.reports->leave(id, /*early=*/!finished_);
  // Its own limit counts from when it sent what we heard last. Where the kernel says that it has closed the connection
  // it has seen that end, too, and kills its workers within kClosedGrace, if it lives. Who has said that all of them
  // have ended has none.
  if (seat.node.member && !(seat.done && !seat.done->left_behind)) {
    const auto limit = how == Parting::cut ? heard + settings_.nodes.silence() : Clock::now();
    not_before_ = std::max(not_before_, following_.time_of(limit + milliseconds(1)) + kCutOffMargin);
  }
  if (const std::string most = following_.majority().gone(); !most.empty() && !finished_)
    return finish(meet::GivesUp{most + " are lost, and may go on without this one: " + why});
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
  meet::Situation situation{.now = following_.now(),
                            .since = since_,
                            .not_before = not_before_,
                            .running = running_,
                            .first = generation_ == 0,
                            .nodes = {}};
  following_.describe(situation, generation_);
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
  if (decision.step == meet::Step::start) {
    if (following_.is_fresh()) return start(decision.ranks);
    again_ = loop_.at(Clock::now() + settings_.nodes.keep_alive / 2, [this] { consider(); });
    return;
  }
  if (decision.step == meet::Step::end && now.votes < now.votes_needed)
    return finish(meet::GivesUp{decision.reason + ": start the same command again on each node"});
  if (decision.step == meet::Step::end) return finish(meet::Refused{decision.reason});
  if (decision.step == meet::Step::restart && newcomer_.empty()) {
    newcomer_ = decision.reason;
    tell_members(meet::MakeRoom{generation_}, reception_, seats_);
    // A step may be long; but who makes none for so long (a last evaluation, say) is not waited for.
    room_limit_ = loop_.at(Clock::now() + settings_.nodes.limits.join_timeout, [this] {
      if (running_) end_all();
    });
  }
  again_ = {};
  if (decision.again != meet::Time::max())
    again_ = loop_.at(Clock::now() + (decision.again - now.now), [this] { consider(); });
  reason_ = newcomer_.empty() ? decision.reason : "room is made behind the next step: " + newcomer_;
  if (std::exchange(tells_, true)) return;
  // Who is let in must hear a word before he takes us for lost.
  telling_ = loop_.at(Clock::now() + std::min(kReasonsTogether, settings_.nodes.silence() / 4), [this] {
    tells_ = false;
    if (finished_ || ending_) return;
    tell({.reason = reason_, .generation = generation_}, reception_, seats_, running_);
  });
}

void Host::start(const std::vector<std::uint64_t>& ranks) {
  int master_port = 0;
  try {
    master_port = free_port();
  } catch (const UsageError& none) {  // thrown on, it would be the loss of this node to all others
    return finish(meet::Refused{"on " + settings_.own.host + ": " + without_run(none.what())});
  }
  for (auto& [id, seat] : seats_) {
    seat.node.member = seat.stops = false;
    seat.done.reset();
    seat.told.clear();
  }
  ++generation_;
  running_ = true;
  store_.begin(generation_);
  again_ = {};
  int world = 0;
  std::vector<std::string> addresses;  // of all but this one
  for (const std::uint64_t id : ranks) {
    ranks_of_hosts_.erase(seats_.at(id).node.host);
    world += seats_.at(id).node.workers;
    if (id != ranks.front()) addresses.push_back(seats_.at(id).address);
  }
  meet::Start start{.generation = generation_,
                    .restart_count = history_.restarts,
                    .nodes = std::int64_t(ranks.size()),
                    .master_port = master_port,
                    .master_addr = settings_.master_addr,
                    .run_id = settings_.run_id,
                    .report = settings_.reports != nullptr,
                    .heirs = heirs(std::move(addresses), settings_, history_.restarts)};
  following_.majority().begin(generation_, ranks, !start.heirs.empty(), following_.now());
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

// The last that all hear; whoever hears GivesUp kills its workers, for the others may start theirs.
void Host::finish(const meet::Message& last) {
  finished_ = true;
  running_ = false;
  reception_.shut();
  for (const auto& [id, seat] : seats_) reception_.send(id, last);
}

void Host::end_all() {
  if (std::exchange(ending_, true)) return;
  tell_members(meet::EndNow{generation_}, reception_, seats_);
  if (finished_) return;
  // That may take longer than who has come waits for a word.
  tell({.reason = kEnding, .generation = generation_}, reception_, seats_, running_);
}

// Everybody hears how the generation has ended; who waits outside only when no other follows.
void Host::conclude_when_all_done() {
  if (!running_) return;
  EndedGeneration ended{.number = generation_,
                        .blames = std::exchange(blames_, {}),
                        .stop = stop_,
                        .min_nodes = settings_.nodes.limits.min_nodes,
                        .newcomer = newcomer_,
                        .told_to_end = ending_};
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
    if (const std::string why = record_.failed(blamed->host, situation().now);  // or the job never goes on without it
        !why.empty() && (limits.min_nodes < limits.max_nodes || int(seats_.size()) > limits.min_nodes))
      outcome.text += "lockstep: " + why + "\n";
  running_ = ending_ = false;
  finished_ = !outcome.again;
  since_ = situation().now;
  newcomer_.clear();
  room_limit_ = {};
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
