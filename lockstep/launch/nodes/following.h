#pragma once

// Who stands by this agent as the hosting one, and how long that may be counted on: rendezvous/hand_over.h by a clock.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/nodes/settings.h"
#include "lockstep/rendezvous/hand_over.h"
#include "lockstep/rendezvous/messages.h"

namespace lockstep::launch {

/// What an agent knows that hosts in the place of one that was lost.
struct Inheritance {
  rendezvous::Membership last;
  int restarts = 0;  ///< so far, with that for the loss
};

class Following {
 public:
  using Clock = EventLoop::Clock;

  Following(const NodesSettings& settings, const std::optional<Inheritance>& inherited);

  /// Since this agent hosts.
  rendezvous::Time now() const { return time_of(Clock::now()); }
  rendezvous::Time time_of(Clock::time_point when) const;

  /// One asks to be let in who was in a generation whose hosting agent is lost. Why not, in words; empty: it counts
  /// from when it shows that it lives. `own`: the hosting agent itself.
  std::string take_survivor(std::uint64_t id, const rendezvous::Join& join, bool own);
  void on_ping(std::uint64_t id, const rendezvous::Ping& ping);
  rendezvous::Majority& majority() { return majority_; }

  /// How long others may count on this agent: no longer than it may count on most of them, and on no less where nothing
  /// runs.
  std::chrono::milliseconds lease(bool running) const;
  /// Whether what is known of most of them is so fresh that no lease given before is longer.
  bool is_fresh() const;
  /// What decides about an inherited membership, of which `generation` may be the next already.
  void describe(rendezvous::Situation& situation, std::int64_t generation) const;

 private:
  const NodesSettings& settings_;
  const std::int64_t inherited_;  // the generation; 0: none
  const Clock::time_point origin_ = Clock::now();
  rendezvous::Majority majority_;
};

}  // namespace lockstep::launch
