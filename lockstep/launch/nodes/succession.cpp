#include "lockstep/launch/nodes/succession.h"

#include <algorithm>
#include <utility>

#include "lockstep/rendezvous/socket.h"

namespace lockstep::launch {

using std::chrono::milliseconds;

void Succession::introduce(int fd, rendezvous::Join& join) {
  rendezvous::SocketAddress own = rendezvous::own_end(fd);
  if (takes_part_ && own.length > 0 && !port_) {
    port_ = rendezvous::reserve_port(own);
    address_ = port_ ? to_text(rendezvous::own_end(port_.get())) : "";
    if (address_.find('%') != std::string::npos) address_.clear();  // of one link alone: it means another there
  }
  join.address = address_;
  join.generation = last_.generation;
  join.rank = last_.rank;
  join.may_run =
      std::max<std::int64_t>(0, lost_since_ ? std::chrono::ceil<milliseconds>(may_run_ - Clock::now()).count() : 0);
}

void Succession::learn(const rendezvous::Start& start) {
  last_ = {.generation = start.generation, .nodes = int(start.nodes), .rank = int(start.rank), .heirs = start.heirs};
  last_.heirs.resize(std::min(last_.heirs.size(), std::size_t(std::min(rendezvous::kMostHeirs, last_.nodes - 1))));
  restarts_ = int(start.restart_count);
  lost_since_.reset();
}

// A generation without this node: it has no voice any more.
void Succession::learn(const rendezvous::Waiting& waiting) {
  if (waiting.generation > last_.generation) last_ = {};
}

// Who closes a connection kills his workers within kClosedGrace, or is dead. Else they end at their limit, which counts
// from something that this agent has heard.
void Succession::on_loss(Parting how, Clock::time_point heard) {
  const Clock::time_point now = Clock::now();
  if (!lost_since_) lost_since_ = now;
  may_run_ = std::max(may_run_, how == Parting::closed ? now : heard + settings_.hand_over());
}

rendezvous::Heir Succession::heir() const {
  const auto since = std::chrono::duration_cast<milliseconds>(Clock::now() - lost_since_.value_or(Clock::now()));
  return rendezvous::heir_at(last_, since, settings_.hand_over());
}

Succession::Clock::time_point Succession::until(const rendezvous::Heir& heir) const {
  return heir.until == rendezvous::Time::max() ? Clock::time_point::max()
                                               : lost_since_.value_or(Clock::now()) + heir.until;
}

base::UniqueFd Succession::open_port() {
  rendezvous::listen_at_reserved(port_.get());
  return std::move(port_);
}

}  // namespace lockstep::launch
