#include "lockstep/rendezvous/membership.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>

#include "lockstep/base/text.h"

namespace lockstep::rendezvous {
namespace {

// No more than fit into a line.
std::string host_names(const std::vector<Node>& nodes) {
  constexpr std::size_t kMostNames = 20;
  std::vector<std::string> hosts;
  for (std::size_t i = 0; i < std::min(nodes.size(), kMostNames); ++i) hosts.push_back(nodes[i].host);
  const std::string more = nodes.size() > kMostNames ? ", " + std::to_string(nodes.size() - kMostNames) + " more" : "";
  return base::join(hosts) + more;
}

std::string whole_seconds(Time time) { return std::to_string((time.count() + 999) / 1000) + " s"; }

// "0.5", "1".
std::string in_seconds(Time time) {
  std::string text = std::to_string(time.count() / 1'000);
  if (const auto part = time.count() % 1'000; part != 0) {
    text += "." + std::to_string(1'000 + part).substr(1);
    text.erase(text.find_last_not_of('0') + 1);
  }
  return text;
}

// "1 of at least 2 nodes: h0".
std::string who_is_there(const std::vector<Node>& nodes, const Limits& limits) {
  std::string text = std::to_string(nodes.size()) + " of " + (limits.min_nodes < limits.max_nodes ? "at least " : "") +
                     std::to_string(limits.min_nodes) + (limits.min_nodes == 1 ? " node: " : " nodes: ") +
                     host_names(nodes);
  if (!limits.fixed_ranks) return text;
  std::vector<std::string> missing;
  for (int rank = 0; rank < limits.max_nodes; ++rank)
    if (std::ranges::find(nodes, rank, &Node::wanted_rank) == nodes.end()) missing.push_back(std::to_string(rank));
  return missing.empty() ? text : text + "; node rank " + base::join(missing) + " missing";
}

// Who gets in when there are more than fit: the hosting agent, then those who were in before, then by time. Who is left
// out comes last, and only where there are too few without him.
std::vector<Node> chosen(const Situation& situation, const Limits& limits) {
  std::vector<Node> nodes = situation.nodes;
  const auto left_out = [&](const Node& node) { return node.left_out_until > situation.now; };
  std::stable_sort(nodes.begin() + 1, nodes.end(), [&](const Node& a, const Node& b) {
    return std::tuple(left_out(a), !a.member, a.member ? Time{0} : a.asked) <
           std::tuple(left_out(b), !b.member, b.member ? Time{0} : b.asked);
  });
  const auto fit = int(1 + std::count_if(nodes.begin() + 1, nodes.end(), std::not_fn(left_out)));
  const int most = std::min(std::max(fit, limits.min_nodes), limits.max_nodes);
  if (int(nodes.size()) > most) nodes.resize(std::size_t(most));
  return nodes;
}

// A node keeps the rank that it names or had, where that exists still; the others fill what is left, in order.
std::vector<std::uint64_t> ranks_of(const std::vector<Node>& nodes, const Limits& limits) {
  std::vector<const Node*> places(nodes.size());
  places[0] = &nodes[0];
  const auto take = [&](const Node& node, int rank) {
    if (rank <= 0 || rank >= int(places.size()) || places[std::size_t(rank)] != nullptr) return false;
    places[std::size_t(rank)] = &node;
    return true;
  };
  std::vector<const Node*> others;
  for (const bool members : {true, false}) {
    for (std::size_t i = 1; i < nodes.size(); ++i) {
      if (nodes[i].member != members) continue;
      if (!take(nodes[i], limits.fixed_ranks ? nodes[i].wanted_rank : nodes[i].last_rank)) others.push_back(&nodes[i]);
    }
  }
  for (std::size_t rank = 1, next = 0; rank < places.size(); ++rank)
    if (places[rank] == nullptr) places[rank] = others[next++];
  std::vector<std::uint64_t> ranks;
  for (const Node* node : places) ranks.push_back(node->id);
  return ranks;
}

Decision decide_running(const Situation& situation, const Limits& limits) {
  const auto members = std::ranges::count_if(situation.nodes, &Node::member);
  const auto newcomer = std::ranges::find_if(situation.nodes, [](const Node& node) { return !node.member; });
  if (newcomer == situation.nodes.end()) return {.reason = "the job runs"};
  if (members >= limits.max_nodes)
    return {.reason = newcomer->host + " waits as a spare: the job has its " + std::to_string(members) + " nodes"};
  const auto welcome = std::ranges::find_if(
      situation.nodes, [&](const Node& node) { return !node.member && node.left_out_until <= situation.now; });
  if (welcome != situation.nodes.end()) return {.step = Step::restart, .reason = welcome->host + " has come"};
  Time again = Time::max();
  for (const Node& node : situation.nodes)
    if (!node.member) again = std::min(again, node.left_out_until);
  return {.reason = newcomer->host + " is left out for a while: it has failed again and again", .again = again};
}

// Behind a hand-over: too few may be cut off from the rest; and who comes a moment later need not cost a restart.
std::optional<Decision> decide_votes(const Situation& situation) {
  const std::string are = std::to_string(situation.votes) + (situation.votes == 1 ? " is" : " are") + " here";
  if (situation.votes < situation.votes_needed) {
    const std::string why = "without the hosting agent " + std::to_string(situation.votes_needed) + " of the " +
                            std::to_string(situation.voters) + " nodes are needed to go on, and " + are;
    if (situation.now < situation.votes_until) return Decision{.reason = why, .again = situation.votes_until};
    return Decision{.step = Step::end, .reason = why};
  }
  // The lost one does not come.
  if (situation.votes < situation.voters - 1 && situation.now < situation.others_until)
    return Decision{.reason = are + " of the " + std::to_string(situation.voters) + " nodes",
                    .again = situation.others_until};
  return std::nullopt;
}

}  // namespace

Decision decide(const Situation& situation, const Limits& limits) {
  if (situation.running) return decide_running(situation, limits);
  const std::vector<Node>& nodes = situation.nodes;
  const auto busy = std::ranges::find_if(nodes, [](const Node& node) { return node.member && !node.ready; });
  if (busy != nodes.end()) return {.reason = "the workers on " + busy->host + " are still ending"};
  if (situation.now < situation.not_before)
    return {.reason = "workers of a node that was lost may still run", .again = situation.not_before};
  if (const auto votes = decide_votes(situation)) return *votes;
  const std::vector<Node> in = chosen(situation, limits);
  if (int(in.size()) < limits.min_nodes) {
    const Time end = situation.since + limits.join_timeout;
    if (situation.now < end) return {.reason = "waiting for " + who_is_there(in, limits), .again = end};
    return {.step = Step::end,
            .reason = "the time is up (" + whole_seconds(limits.join_timeout) + "): " + who_is_there(in, limits)};
  }
  const bool survivors = !situation.first;  // they have been called before
  if (int(in.size()) < limits.max_nodes && !survivors) {
    std::vector<Time> asked;
    for (const Node& node : in) asked.push_back(node.asked);
    std::ranges::sort(asked);
    const Time last_call = asked[std::size_t(limits.min_nodes - 1)] + limits.last_call_timeout;
    if (situation.now < last_call)
      return {.reason = who_is_there(in, limits) + "; last call for more: " + whole_seconds(limits.last_call_timeout),
              .again = last_call};
  }
  return {.step = Step::start,
          .reason = std::to_string(in.size()) + " nodes: " + host_names(in),
          .ranks = ranks_of(in, limits)};
}

std::string refusal(const Application& application, const Application& own, const Limits& limits,
                    const std::vector<Node>& nodes) {
  const auto differ = [&](const std::string& what, const std::string& theirs, const std::string& ours) {
    return what + " is '" + theirs + "' on " + application.host + " and '" + ours + "' on " + own.host;
  };
  if (application.version != own.version) return differ("the version of lockstep", application.version, own.version);
  if (application.run_id != own.run_id) return differ("--rdzv-id", application.run_id, own.run_id);
  if (application.backend != own.backend) return differ("--rdzv-backend", application.backend, own.backend);
  if (application.nnodes != own.nnodes) return differ("--nnodes", application.nnodes, own.nnodes);
  if (application.keep_alive != own.keep_alive)
    return differ("--rdzv-conf keep_alive_interval", in_seconds(application.keep_alive), in_seconds(own.keep_alive));
  if (application.misses != own.misses)
    return differ("--rdzv-conf keep_alive_max_attempt", std::to_string(application.misses), std::to_string(own.misses));
  if (!limits.fixed_ranks) return {};
  const std::string rank = "--node-rank " + std::to_string(application.wanted_rank) + " of " + application.host;
  if (application.wanted_rank < 0 || application.wanted_rank >= limits.max_nodes)
    return rank + " is not a number from 0 to " + std::to_string(limits.max_nodes - 1);
  const auto taken = std::ranges::find(nodes, application.wanted_rank, &Node::wanted_rank);
  return taken == nodes.end() ? "" : rank + " is taken by " + taken->host;
}

std::string to_string(const Limits& limits) {
  const std::string least = std::to_string(limits.min_nodes);
  return limits.min_nodes == limits.max_nodes ? least : least + ":" + std::to_string(limits.max_nodes);
}

}  // namespace lockstep::rendezvous
