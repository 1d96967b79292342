#include "lockstep/launch/nodes/outcome.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/report/verdict.h"

namespace lockstep::launch {
namespace {

using rendezvous::Outcome;

bool all_have(const EndedGeneration& ended, int code) {
  return std::ranges::all_of(ended.nodes, [code](const EndedNode& node) { return node.done.code == code; });
}

bool some_process_is_left(const EndedGeneration& ended) {
  return std::ranges::any_of(ended.nodes, [](const EndedNode& node) { return node.done.left_behind; });
}

bool others_may_go_on(const EndedGeneration& ended) { return !ended.host_stops && ended.others >= ended.min_nodes; }

// What is left may still write, and holds what the next generation needs.
Outcome start_unless_left(const EndedGeneration& ended, Outcome outcome) {
  if (!outcome.again || !some_process_is_left(ended)) return outcome;
  outcome.again = false;
  outcome.why_not = kLeftBehind;
  return outcome;
}

std::string text_of(const Stop& stop) {
  return "lockstep: the agent on " + stop.host + " was ended by " + signal_name(stop.signal) + "\n";
}

// Those who were not asked go on without the others when they may.
Outcome of_stop(const EndedGeneration& ended) {
  Outcome outcome{.signal = ended.stop->signal};
  outcome.text = text_of(*ended.stop);
  const bool all_well = all_have(ended, kExitDone);
  const bool all_saved = all_have(ended, kExitStopped);
  outcome.code = all_well ? kExitDone : all_saved ? kExitStopped : 128 + ended.stop->signal;
  outcome.again = !all_well && !all_saved && others_may_go_on(ended);
  return start_unless_left(ended, std::move(outcome));
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

// Broken connections and nodes that are gone may follow from the stop as well; what a worker did by itself does not.
std::vector<Blame> blames_beside_stop(const EndedGeneration& ended) {
  std::vector<Blame> blames = ended.blames;
  if (ended.stop)
    std::erase_if(blames, [](const Blame& blame) {
      return blame.failure.kind == rendezvous::FailureKind::connection ||
             blame.failure.kind == rendezvous::FailureKind::node_lost;
    });
  return blames;
}

Outcome of_failure(const EndedGeneration& ended, const std::vector<Blame>& blames, History& history, int max_restarts,
                   const std::vector<int>& no_restart_codes) {
  std::vector<rendezvous::NodeFailure> failures;
  for (const Blame& blame : blames) failures.push_back(blame.failure);
  const Blame& first = blames[rendezvous::first_of(failures)];
  std::int64_t fallen = 0;
  for (const EndedNode& node : ended.nodes) fallen += node.done.fallen;
  // The first is among them, unless it went with its node.
  if (std::ranges::find(ended.nodes, first.node, &EndedNode::id) != ended.nodes.end() && fallen > 0) --fallen;
  const Decision decision = decide_and_count(facts_of(ended, first), history, max_restarts, no_restart_codes);
  // A signal that came meanwhile is not why it failed; it only may keep the rest from starting again.
  const bool may_start = !ended.stop || others_may_go_on(ended);
  return {.code = first.code,
          .again = may_start && decision.next != Next::finish,
          .blamed = std::int64_t(first.node),
          .counts = may_start && decision.next == Next::restart,
          .new_port = may_start && decision.next == Next::new_port,
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
  if (outcome.code == kExitStopped && !ended.told_to_end) return outcome;  // asked by somebody else
  outcome.again = true;
  outcome = start_unless_left(ended, std::move(outcome));
  if (outcome.again) outcome.text = "lockstep: starting again with other nodes: " + ended.newcomer + "\n";
  return outcome;
}

}  // namespace

Outcome outcome_of_leaving(const Stop& stop, int others, int min_nodes) {
  return {.code = 128 + stop.signal, .again = others >= min_nodes, .signal = stop.signal, .text = text_of(stop)};
}

Outcome outcome_of(const EndedGeneration& ended, History& history, int max_restarts,
                   const std::vector<int>& no_restart_codes) {
  const std::vector<Blame> blames = blames_beside_stop(ended);
  Outcome outcome = !blames.empty() ? of_failure(ended, blames, history, max_restarts, no_restart_codes)
                    : ended.stop    ? of_stop(ended)
                                    : of_end(ended);
  outcome.generation = ended.number;
  outcome.restarts = history.restarts;
  return outcome;
}

}  // namespace lockstep::launch
