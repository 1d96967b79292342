#pragma once

// What a member keeps for the case that the hosting agent is lost: a port at which it would host, what it was told of
// the membership, and until when workers of the lost one may run. Who is next is said by a pure function
// (rendezvous/hand_over.h).

#include <optional>
#include <string>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/nodes/connection.h"
#include "lockstep/launch/nodes/settings.h"
#include "lockstep/rendezvous/hand_over.h"
#include "lockstep/rendezvous/messages.h"

namespace lockstep::launch {

class Succession {
 public:
  using Clock = EventLoop::Clock;

  /// `takes_part`: this agent may host in another's place, or follow one that does.
  Succession(const NodesSettings& settings, bool takes_part, int max_restarts)
      : settings_(settings), takes_part_(takes_part), max_restarts_(max_restarts) {}

  /// The first words to a hosting agent, over this socket: where this agent would host, and what it survives.
  void introduce(int fd, rendezvous::Join& join);
  void learn(const rendezvous::Start& start);
  void learn(const rendezvous::Waiting& waiting);
  void learn(const rendezvous::Outcome& outcome) { restarts_ = int(outcome.restarts); }
  /// A hosting agent that had been heard is lost.
  void on_loss(Parting how, Clock::time_point heard);

  bool takes_part() const { return takes_part_; }
  /// Whether somebody may host in its place.
  bool possible() const { return takes_part_ && !last_.heirs.empty() && restarts_ < max_restarts_; }
  /// Who is to do so now, and when that changes.
  rendezvous::Heir heir() const;
  Clock::time_point until(const rendezvous::Heir& heir) const;
  const std::string& address_of(int rank) const { return last_.heirs.at(std::size_t(rank) - 1); }
  const rendezvous::Membership& last() const { return last_; }
  /// Restarts of the job, with the one for the loss.
  int restarts() const { return restarts_ + 1; }
  /// A socket that listens. Once. Throws Error.
  base::UniqueFd open_port();

 private:
  const NodesSettings& settings_;
  const bool takes_part_;
  const int max_restarts_;
  base::UniqueFd port_;
  std::string address_;
  rendezvous::Membership last_;
  int restarts_ = 0;
  std::optional<Clock::time_point> lost_since_;  // the first loss behind the last start
  Clock::time_point may_run_ = Clock::time_point::min();
};

}  // namespace lockstep::launch
