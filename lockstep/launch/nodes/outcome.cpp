#include "lockstep/launch/nodes/outcome.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/launch/report/verdict.h"

namespace lockstep::launch {
namespace {

using rendezvous::Outcome;

bool all_have(const EndedGeneration& ended, int code) {
  return std::ranges::all_of(ended.nodes, [code](const EndedNode& node) { return node.done.code == code; });
}

// Those who were not asked go on without the others when they may.
Outcome of_stop(const EndedGeneration& ended) {
  Outcome outcome{.signal = ended.stop->signal};
  outcome.text =
      "lockstep: the agent on " + ended.stop->host + " was ended by " + signal_name(ended.stop->signal) + "\n";
  const bool all_well = all_have(ended, kExitDone);
  const bool all_saved = all_have(ended, kExitStopped);
  outcome.code = all_well ? kExitDone : all_saved ? kExitStopped : 128 + ended.stop->signal;
  outcome.again = !ended.host_stops && !all_well && !all_saved && ended.others >= ended.min_nodes;
  return outcome;
}

AttemptFacts facts_of(const EndedGeneration& ended, const Blame& blame) {
  AttemptFacts facts{.code = blame.code};
  for (const auto& [id, done] : ended.nodes) {
    facts.left_behind = facts.left_behind || done.left_behind;
    facts.port_was_taken = facts.port_was_taken || done.port_was_taken;
    facts.joined = facts.joined || done.joined;
    if (id != blame.node) continue;
    facts.never_ran = done.never_ran;
    facts.bad_input = done.bad_input;
    facts.uptime = std::chrono::milliseconds(done.uptime);
  }
  return facts;
}

Outcome of_failure(const EndedGeneration& ended, History& history, int max_restarts,
                   const std::vector<int>& no_restart_codes) {
  std::vector<rendezvous::NodeFailure> failures;
  for (const Blame& blame : ended.blames) failures.push_back(blame.failure);
  const Blame& first = ended.blames[rendezvous::first_of(failures)];
  std::int64_t fallen = 0;
  for (const EndedNode& node : ended.nodes) fallen += node.done.fallen;
  // The first is among them, unless it went with its node.
  if (std::ranges::find(ended.nodes, first.node, &EndedNode::id) != ended.nodes.end() && fallen > 0) --fallen;
  const Decision decision = decide_and_count(facts_of(ended, first), history, max_restarts, no_restart_codes);
  return {.code = first.code,
          .again = decision.next != Next::finish,
          .blamed = std::int64_t(first.node),
          .counts = decision.next == Next::restart,
          .new_port = decision.next == Next::new_port,
          .delay = decision.delay.count(),
          .text = first.text.empty() ? "" : first.text + report_followers(fallen),
          .why_not = decision.why_not};
}

Outcome of_end(const EndedGeneration& ended) {
  Outcome outcome;
  // Whoever was asked to stop, and has saved, makes it a job that is to be started again.
  for (const EndedNode& node : ended.nodes)
    if (node.done.code != kExitDone && outcome.code != kExitStopped) outcome.code = node.done.code;
  if (ended.newcomer.empty() || outcome.code == kExitDone) return outcome;
  outcome.again = true;
  outcome.text = "lockstep: starting again with other nodes: " + ended.newcomer + "\n";
  return outcome;
}

}  // namespace

Outcome outcome_of(const EndedGeneration& ended, History& history, int max_restarts,
                   const std::vector<int>& no_restart_codes) {
  Outcome outcome = ended.stop             ? of_stop(ended)
                    : ended.blames.empty() ? of_end(ended)
                                           : of_failure(ended, history, max_restarts, no_restart_codes);
  outcome.generation = ended.number;
  outcome.restarts = history.restarts;
  return outcome;
}

}  // namespace lockstep::launch
