#pragma once

// How a generation has ended, for all its nodes: pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/agent/policy.h"
#include "lockstep/rendezvous/first_failure.h"
#include "lockstep/rendezvous/messages.h"

namespace lockstep::launch {

/// A failure that some agent has told of, or the loss of a node.
struct Blame {
  rendezvous::NodeFailure failure;
  std::uint64_t node = 0;  ///< the agent's number
  int code = 1;
  std::string text;  ///< what is to be said, lines with their ends
  std::string host;
};

/// An agent of the generation that is still there: all its workers have ended.
struct EndedNode {
  std::uint64_t id = 0;
  rendezvous::Done done;
};

/// A signal that some agent was given.
struct Stop {
  int signal = 0;
  std::string host;
};

/// What an agent is told that was given one between two generations. The others are told the same, unless they, so
/// many, may go on without it.
rendezvous::Outcome outcome_of_leaving(const Stop& stop, int others, int min_nodes);

/// What is known when no worker is left on any node.
struct EndedGeneration {
  std::int64_t number = 0;
  std::vector<EndedNode> nodes;
  std::vector<Blame> blames;
  std::optional<Stop> stop;  ///< the first
  bool host_stops = false;   ///< the hosting agent was given one
  int others = 0;            ///< agents that were not, spares too
  int min_nodes = 1;
  std::string newcomer;      ///< for which it was ended; empty: none
  bool told_to_end = false;  ///< at once, by a signal to the workers, for some of which that means kExitStopped
};

/// What all are told, but for Outcome::to_blame. `history` has this generation afterwards.
rendezvous::Outcome outcome_of(const EndedGeneration& ended, History& history, int max_restarts,
                               const std::vector<int>& no_restart_codes);

}  // namespace lockstep::launch
