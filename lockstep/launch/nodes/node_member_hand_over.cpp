// What a member does when the hosting agent is lost: another hosts in its place, or all end.

#include <optional>
#include <string>
#include <utility>

#include "lockstep/launch/nodes/node_member.h"

namespace lockstep::launch {

namespace meet = rendezvous;

// The hosting agent: its loss is one of the job's failures.
Decision NodeMember::go_on_without(AttemptResult& result, const std::function<int()>& stop_signal) {
  result.code = kExitFailure;
  result.record.first_elsewhere =
      "lockstep: the hosting agent (" + agent_.endpoint() + ") is lost: " + one_line(*lost_) + "\n";
  result.record.first.reset();
  if (hand_over(stop_signal)) return {.next = Next::restart, .restarts = agent_.succession().restarts()};
  if (const int signal = stop_signal(); signal != 0) {
    result.code = 128 + signal;
    result.stop_signal = signal;
  }
  return {};
}

bool NodeMember::may_hand_over() {
  return !agent_.is_here() && !asked_to_end_ && !gives_up_ && agent_.succession().possible();
}

// Whether another agent hosts now: this one, or one that lets it in. No worker of the last generation is left here.
bool NodeMember::hand_over(const std::function<int()>& stop_signal) {
  const std::string why = *lost_;
  while (may_hand_over() && stop_signal() == 0) {
    const meet::Heir heir = agent_.succession().heir();
    if (heir.turn == meet::Turn::end) {
      console_.say("lockstep: nobody hosts in its place: start the same command again on each node\n");
      break;
    }
    lost_.reset();
    outcome_.reset();
    lease_end_ = {};
    end_now_ = blamed_ = false;
    waits_since_ = Clock::now();
    agent_.turn_to(heir, run_id_);
    loop_.run_until([&] { return agent_.line().heard() || refused_ || lost_ || stop_signal() != 0; },
                    agent_.succession().until(heir));
    if (refused_) {
      console_.say("lockstep: " + one_line(*std::exchange(refused_, std::nullopt)) + "\n");
      break;
    }
    if (!lost_ && agent_.line().heard()) {
      console_.say("lockstep: " + (agent_.is_here() ? "this agent" : "the agent of node " + std::to_string(heir.rank)) +
                   " hosts now, at " + agent_.endpoint() + ": a node that comes late is given this --rdzv-endpoint\n");
      return true;
    }
  }
  if (!lost_) lost_ = why;
  return false;
}

}  // namespace lockstep::launch
