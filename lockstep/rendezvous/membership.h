#pragma once

// Who is in the next generation of a job over several nodes, and when it starts: pure functions of who has asked, who
// is alive, the limits and the time. No clock, no socket; the hosting agent asks after each event
// (docs/design/rendezvous.md).

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::rendezvous {

/// A point in time, from any fixed origin.
using Time = std::chrono::milliseconds;

/// What the user allows. The same on all nodes.
struct Limits {
  int min_nodes = 1;
  int max_nodes = 1;
  bool fixed_ranks = false;        ///< every node names its rank (static rendezvous), and all must be there
  Time join_timeout{600'000};      ///< how long fewer than min_nodes are waited for
  Time last_call_timeout{30'000};  ///< how long more are waited for when min_nodes are there
};

/// An agent that is alive and has asked for a place.
struct Node {
  std::uint64_t id = 0;  ///< the agent, not the machine
  std::string host;      ///< for messages, and to know a machine again
  int workers = 1;
  int wanted_rank = -1;  ///< --node-rank; -1: none
  int last_rank = -1;    ///< in the generation before, of this agent or of one that was on its host; -1: none
  bool member = false;   ///< of the generation that runs or has just ended
  bool ready = false;    ///< none of its workers is left of that generation
  Time asked{0};
  Time left_out_until{0};  ///< it has failed again and again (host_record.h); of no meaning for the hosting agent
};

/// All there is to know. `nodes`: the hosting agent first; it is in every generation, with rank 0.
struct Situation {
  Time now{0};
  Time since{0};       ///< when this gathering began
  Time not_before{0};  ///< until then workers of a node that was lost may run
  bool running = false;
  bool first = true;  ///< there was no generation before
  /// Where this agent hosts in the place of one that was lost: so many of the last membership are here, so many make a
  /// strict majority of it, and so many there were.
  int votes = 0, votes_needed = 0, voters = 0;
  Time votes_until{0};   ///< how long a majority is waited for
  Time others_until{0};  ///< and, when it is here, the others of them
  std::vector<Node> nodes;
};

enum class Step {
  wait,     ///< nothing to do yet
  start,    ///< the generation may start with `ranks`
  restart,  ///< the one that runs makes room for a newcomer: no failure
  end,      ///< the time is up
};

struct Decision {
  Step step = Step::wait;
  std::string reason;       ///< in words; said when it changes
  Time again{Time::max()};  ///< ask again at this time, whatever happens
  /// start: the agents by rank.
  std::vector<std::uint64_t> ranks;
};

/// What is to be done now.
Decision decide(const Situation& situation, const Limits& limits);

/// What an agent says of itself when it asks.
struct Application {
  std::string version;  ///< of lockstep
  std::string run_id;
  std::string nnodes;   ///< "2:4"
  std::string backend;  ///< static or c10d
  std::string host;
  int workers = 1;
  int wanted_rank = -1;
  Time keep_alive{1'000};  ///< where they differ a node's limit is not what the hosting agent takes it for
  int misses = 5;
};

/// Why it cannot be let in, in one line that names both values and both hosts; empty: it can. `own` is the hosting
/// agent's, `nodes` who is there.
std::string refusal(const Application& application, const Application& own, const Limits& limits,
                    const std::vector<Node>& nodes);

/// "2", "2:4".
std::string to_string(const Limits& limits);

}  // namespace lockstep::rendezvous
