#include "lockstep/launch/nodes/host_line.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/launch/nodes/tcp_store.h"

namespace lockstep::launch {

using std::chrono::milliseconds;

namespace {

// How often an endpoint is tried where nobody listens yet.
constexpr milliseconds kTryAgain{200};
// How long a name server may take before that is said; its answer is waited for all the same.
constexpr milliseconds kLookUp{1'000};
// How long one connection may take to be made: a packet may be lost, and somebody may begin to host meanwhile.
constexpr milliseconds kConnect{2'000};
// After so many doors that were closed before a word: is it another program's?
constexpr int kTurnedAway = 10;
// By how much two clocks drift apart in a second.
constexpr double kDrift = 1e-4;

rendezvous::Ping ping_now(std::int64_t answered, std::int64_t generation) {
  return {.sent = BootClock::now().time_since_epoch() / std::chrono::nanoseconds(1),
          .answered = answered,
          .generation = generation};
}

}  // namespace

HostLine::HostLine(EventLoop& loop, const NodesSettings& settings, std::string endpoint, rendezvous::Join join,
                   Events events)
    : loop_(loop),
      settings_(settings),
      endpoint_(std::move(endpoint)),
      join_(std::move(join)),
      events_(std::move(events)) {}

void HostLine::connect(Where where, std::function<std::unique_ptr<Channel>(int fd)> channel) {
  where_ = std::move(where);
  lookup_ = std::move(where_.begun);
  channel_ = std::move(channel);
  timer_ = loop_.at(Clock::now(), [this] { try_connect(); });  // no event within this call
}

// A name server that is dead is waited for by the resolver alone: signals and the leash are heard meanwhile.
void HostLine::try_connect() {
  if (lookup_ == nullptr) lookup_ = std::make_unique<Errand<rendezvous::Resolved>>(where_.look_up);
  timer_ = loop_.at(Clock::now() + kLookUp, [this] { try_again("no name server answers"); });
  awaited_ = {};  // the same descriptor, where the answer is waited for still
  awaited_ = loop_.watch(lookup_->fd(), [this] {
    awaited_ = {};
    timer_ = {};
    rendezvous::Resolved found = std::exchange(lookup_, nullptr)->take();
    if (where_.usable) found = where_.usable(found);
    call(found);
  });
}

void HostLine::call(const rendezvous::Resolved& found) {
  if (connection_ != nullptr && connection_->open()) return;
  const std::size_t count = found.addresses.size();
  if (untried_ == 0 || untried_ > count) untried_ = count;
  if (count == 0) return try_again(found.why);
  address_ = found.addresses[count - untried_--];
  try {
    connecting_ = rendezvous::begin_connect(address_, where_.local ? where_.local() : rendezvous::SocketAddress{});
  } catch (const Error& error) {  // of a family that this machine does not speak, perhaps
    if (count == 1) throw;
    return try_again(error.what());
  }
  if (!connecting_) return try_again(std::strerror(errno));
  timer_ = loop_.at(Clock::now() + std::min(kConnect, settings_.limits.join_timeout), [this] {
    awaited_ = {};
    connecting_ = {};
    try_again("it does not answer");
  });
  awaited_ = loop_.watch(
      connecting_.get(),
      [this] {
        awaited_ = {};
        if (const int error = rendezvous::connect_error(connecting_.get()); error != 0)
          return try_again(std::strerror(error));
        const int fd = connecting_.get();
        if (events_.meets) events_.meets(fd);
        use(std::move(connecting_), channel_(fd));
      },
      /*also_room=*/true);
}

void HostLine::try_again(const std::string& why) {
  if (troubles_.find(why) == std::string::npos) troubles_ += (troubles_.empty() ? "" : "; ") + why;
  if (Clock::now() - began_ > settings_.limits.join_timeout) {
    awaited_ = {};
    return events_.refused("the time is up (" + std::to_string((settings_.limits.join_timeout.count() + 999) / 1000) +
                           " s): no agent hosts at " + endpoint_ + ": " + troubles_ +
                           "; where a job has lost its hosting agent, its nodes have said where they go on");
  }
  if (untried_ == 0)
    events_.waits("waiting for the agent that hosts at " + endpoint_ + ": " + std::exchange(troubles_, ""));
  timer_ = loop_.at(Clock::now() + (untried_ == 0 ? kTryAgain : milliseconds(0)), [this] { try_connect(); });
}

void HostLine::use(base::UniqueFd fd, std::unique_ptr<Channel> channel) {
  const int number = fd.get();
  connection_ = std::make_unique<Connection>(
      loop_, std::move(fd), std::move(channel),
      Connection::Events{.message = [this](const rendezvous::Message& message) { on_message(message); },
                         .closed = [this](const std::string& why, Parting how) { lose(why, how); }});
  connection_->trust();
  lease_ = BootClock::now() + settings_.silence();
  rendezvous::Join join = join_;
  if (events_.joins) events_.joins(number, join);
  survivor_ = join.generation > 0;
  connection_->send(join);
  keep_alive();
}

void HostLine::send(const rendezvous::Message& message) {
  if (connection_ != nullptr) connection_->send(message);
}

void HostLine::keep_alive() {
  if (connection_ == nullptr || !connection_->open()) return;
  if (BootClock::now() >= lease_) {
    connection_->close();
    return lose("nothing was heard of it for " + std::to_string(settings_.silence().count()) + " ms", Parting::silent);
  }
  timer_ = loop_.at(std::min(lease(), Clock::now() + settings_.keep_alive), [this] { keep_alive(); });
  // The first comes with the second turn: before it is let in, only the question is read.
  if (heard_) connection_->send(ping_now(answered_, generation_));
}

// The hosting agent counts from when it hears a ping, which is after it was sent.
void HostLine::on_message(const rendezvous::Message& message) {
  heard_at_ = Clock::now();
  if (const auto* start = std::get_if<rendezvous::Start>(&message)) generation_ = start->generation;
  if (const auto* waiting = std::get_if<rendezvous::Waiting>(&message)) generation_ = waiting->generation;
  if (!std::exchange(heard_, true)) {
    events_.leased(lease());
    keep_alive();
  }
  const auto* pong = std::get_if<rendezvous::Pong>(&message);
  if (pong == nullptr) return events_.message(message);
  const BootClock::time_point sent{std::chrono::nanoseconds(pong->sent)};
  const milliseconds good_for(std::clamp<std::int64_t>(pong->good_for, 0, settings_.silence().count()));
  lease_ = std::max(lease_, sent + good_for);
  // One that hosts in another's place must know that its words arrive before it counts on this node.
  if (std::exchange(answered_, pong->answered) == 0 && survivor_ && connection_->open())
    connection_->send(ping_now(answered_, generation_));
  events_.leased(lease());
  // Read before the way's end is: what passes between the two readings is in the error then.
  const double wall = wall_clock();
  const double way = std::chrono::duration<double>(BootClock::now() - sent).count() / 2;
  if (way > clock_error()) return;
  clock_error_ = way;
  clock_measured_ = Clock::now();
  clock_offset_ = pong->wall + way - wall;
}

double HostLine::clock_error() const {
  return clock_error_ + kDrift * std::chrono::duration<double>(Clock::now() - clock_measured_).count();
}

void HostLine::lose(const std::string& why, Parting how) {
  timer_ = {};
  if (heard_) return events_.lost(why, how);
  const std::string hint = "; is --secret-file the same on all nodes, and the version of lockstep?";
  const bool answered = how == Parting::silent || why == kNoKey;
  if (!answered && ++turned_away_ < kTurnedAway) return try_again("it closes the connection: " + why + hint);
  const auto judge = [=, this](bool tcp_store) {
    if (tcp_store)
      return events_.refused("the agent at " + endpoint_ +
                             " is torchrun's (a TCPStore), with whose agents these cannot meet: start lockstep run on "
                             "every node, or torchrun");
    // It may be stopped, or this one was, or the wire is cut: all pass.
    if (how == Parting::silent) return try_again("it accepts the connection and says nothing");
    // It does so to the oldest of too many, whom strangers may be: no word against this agent.
    if (!answered && was_closed(why)) return try_again("it closes the connection: " + why + hint);
    events_.refused("the agent at " + endpoint_ + " does not let this one in: " + why + hint);
  };
  if (address_.length == 0 || (!answered && turned_away_ != kTurnedAway)) return judge(false);
  is_tcp_store_ = std::make_unique<Errand<bool>>([address = address_] { return is_tcp_store(address); });
  awaited_ = loop_.watch(is_tcp_store_->fd(), [this, judge] {
    awaited_ = {};
    judge(std::exchange(is_tcp_store_, nullptr)->take());
  });
}

}  // namespace lockstep::launch
