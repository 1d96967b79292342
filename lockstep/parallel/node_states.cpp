#include "lockstep/parallel/node_states.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/comm/network/wire.h"
#include "lockstep/parallel/node_exchange.h"

namespace lockstep::parallel {
namespace {

// In the place of a hash: this node cannot tell which of its buffers it is.
constexpr std::string_view kSeveral = "several";

// What a rank tells of its node when the nodes meet.
struct NodeNote {
  std::int32_t node = 0, local_rank = 0, local_world = 1, from_before = 0;
  std::uint64_t step = 0, attempts = 0;
  std::uint64_t set = 0;        // that its share belongs to, or, of a new one, may belong to
  std::uint64_t has_whole = 0;  // 1: it has filled in all of the optimizer's state, for everybody
};

// Never 0, and hardly ever one that there was.
std::uint64_t new_set() {
  std::random_device random;
  return (std::uint64_t(random()) << 32 | random()) | 1;
}

template <class T>
std::vector<T> gather_notes(comm::Group& group, const T& mine) {
  std::vector<T> notes;
  for (const std::string& bytes :
       comm::all_gather_bytes(group, std::string(reinterpret_cast<const char*>(&mine), sizeof mine))) {
    notes.emplace_back();
    std::memcpy(&notes.back(), bytes.data(), sizeof(T));
  }
  return notes;
}

}  // namespace

NodeStates::NodeStates(state::SharedState& state, comm::Group& group) : state_(state), group_(group) { agree(); }

void NodeStates::agree() {
  const comm::Topology& place = group_.topology();
  const std::uint64_t set = !in_shares() ? 0 : state_.taken_over() ? state_.set() : new_set();
  const std::vector<NodeNote> notes = gather_notes(group_, NodeNote{.node = place.node,
                                                                    .local_rank = place.local_rank,
                                                                    .local_world = place.local_world,
                                                                    .from_before = state_.taken_over(),
                                                                    .step = state_.committed().step,
                                                                    .attempts = state_.attempts(),
                                                                    .set = set,
                                                                    .has_whole = !state_.whole_arrays().empty()});
  std::vector<NodeNote> nodes;
  for (const NodeNote& note : notes)
    if (note.local_rank == 0) nodes.push_back(note);
  for (const NodeNote& node : nodes) ranks_.counts.push_back(node.local_world);
  const bool any_from_before = std::ranges::any_of(nodes, [](const NodeNote& node) { return node.from_before != 0; });
  // Of those that begin anew, the first has what the job begins with, from a checkpoint perhaps.
  const auto counts = [&](const NodeNote& node) { return any_from_before ? node.from_before != 0 : node.node == 0; };
  // Who was not in the last attempt has sat out since, and has nothing that the job still needs: a step of it may be
  // one that the others have made since, or that an edit came behind. Those who were differ by one step at most.
  std::uint64_t newest = 0;
  for (const NodeNote& node : nodes)
    if (counts(node) || in_shares()) newest = std::max(newest, node.attempts);  // also of what was forgotten
  // Shares of one state are all of the last attempt that had them: each step is made by all of them.
  const auto is_current = [&](const NodeNote& node) {
    return counts(node) && (in_shares() || node.attempts == newest);
  };
  std::uint64_t step = UINT64_MAX;
  for (const NodeNote& node : nodes)
    if (is_current(node)) step = std::min(step, node.step);
  int from = 0;
  while (!is_current(nodes[std::size_t(from)]) || nodes[std::size_t(from)].step != step) ++from;
  was_in_last_attempt_ = state_.taken_over() && is_current(nodes[std::size_t(place.node)]);
  const std::string wanted = comm::broadcast_bytes(group_, hash(), leader_of(from));
  if (leads()) go_back_to(wanted, step);
  group_.node().member.barrier();
  if (any_from_before) require_share_of(step);
  std::vector<bool> wants(nodes.size());
  const std::vector<std::string> have = comm::all_gather_bytes(group_, hash());
  for (std::size_t node = 0; node < nodes.size(); ++node)
    wants[node] = have[std::size_t(leader_of(int(node)))] != wanted;
  fill_from(from, wants);
  require(wanted, from);
  agreed_ = state_.committed().step;
  if (nodes.front().has_whole != 0) hand_out_shares();
  if (leads()) state_.publish(newest + 1, nodes.front().set);
}

// Of the step that all go on from, for nobody else has it. Where that step was made it is there still, as below.
void NodeStates::require_share_of(std::uint64_t step) const {
  if (in_shares() && state_.committed().step != step)
    throw Error("node " + std::to_string(group_.topology().node) + " has its share of the optimizer's state of step " +
                std::to_string(state_.committed().step) + " only, and the job goes on from step " +
                std::to_string(step));
}

// Of a state that was filled from a checkpoint, which the first node alone reads. Nobody has committed anything to it
// yet: a node that dies now leaves a state that was not published.
void NodeStates::hand_out_shares() {
  const state::Layout& layout = state_.layout();
  const int here = group_.topology().node, buffer = int(state_.committed().buffer);
  state::WholeArrays& whole = state_.whole_arrays();
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  const auto hand_out = [&](int array, bool copied) {
    const std::size_t first = copied ? layout.copied_array(buffer, array) : layout.optimizer_array(buffer, array);
    const auto share_of = [&](int node) {
      return layout.share(copied ? (node + ranks_.nodes() - 1) % ranks_.nodes() : node);
    };
    const auto [mine, mine_end] = share_of(here);
    const std::span<std::byte> room(state_.write(first + mine * sizeof(float)), (mine_end - mine) * sizeof(float));
    if (here > 0 && !room.empty()) in.push_back({0, room});
    for (int node = 0; here == 0 && node < ranks_.nodes(); ++node) {
      const auto [begin, end] = share_of(node);
      const auto part = std::as_bytes(std::span(whole[std::size_t(array)]).subspan(begin, end - begin));
      if (node == 0)
        std::ranges::copy(part, room.begin());
      else if (!part.empty())
        out.push_back({leader_of(node), part});
    }
  };
  for (int array = 0; array < layout.options().optimizer_arrays && leads(); ++array) {
    hand_out(array, /*copied=*/false);
    if (layout.options().copied) hand_out(array, /*copied=*/true);
  }
  if (!out.empty() || !in.empty()) group_.wire()->exchange(note_of_step(0), out, in);
  whole.clear();
  group_.node().member.barrier();
}

void NodeStates::require(const std::string& wanted, int from) const {
  if (hash() != wanted)
    throw Error("node " + std::to_string(group_.topology().node) + " has got another state from node " +
                std::to_string(from) + " than that has");
}

// A node that is ahead has the state in another buffer, mostly; who has it nowhere gets it from a peer. But not its
// share of the optimizer's state, which nobody else may have: that is in the buffer of the step, beside whatever.
void NodeStates::go_back_to(const std::string& wanted, std::uint64_t step) {
  const int now = int(state_.committed().buffer), buffers = state_.layout().options().state_buffers;
  if (!state_.taken_over() || state_.common_hash(now) == wanted) return;
  const auto step_in = [&](int buffer) {
    return state_.read_as<state::StepRecord>(state_.layout().step_record(buffer))->step;
  };
  int found = now;
  for (int buffer = 0; buffer < buffers && in_shares() && state_.committed().step != step; ++buffer)
    if (buffer != now && step_in(buffer) == step) found = buffer;
  for (int buffer = 0; buffer < buffers; ++buffer)
    if (buffer != now && state_.common_hash(buffer) == wanted) found = buffer;
  if (found != now) state_.set_committed({.step = step_in(found), .buffer = std::uint32_t(found)});
}

// Where this node has made that step before the committed one.
std::vector<int> NodeStates::buffers_before(std::uint64_t step) const {
  if (!leads() || !was_in_last_attempt_ || step == 0) return {};
  return state::other_buffers_of(state_, step);
}

// The step before the committed one is whole where it was made: no buffer of it is written before all nodes have
// committed the one behind it, and then none has to go back, and the buffer tells of no step. A node that got the
// committed one from a peer may have something else by that number, an older state without an edit, and one with three
// buffers both: where those that should have it differ, or one has several, nobody goes.
bool NodeStates::go_back(std::uint64_t step) {
  const std::uint64_t now = state_.committed().step;
  if (edited_ || now != agreed_ || now != step + 1) return false;
  const std::vector<int> buffers = buffers_before(step);
  std::string mine;
  if (buffers.size() == 1) mine = state_.common_hash(buffers.front());
  if (buffers.size() > 1) mine = kSeveral;
  const std::vector<std::string> have = comm::all_gather_bytes(group_, mine);
  std::string wanted;
  int from = 0;
  std::vector<bool> wants(std::size_t(ranks_.nodes()));
  for (int node = ranks_.nodes() - 1; node >= 0; --node) {
    const std::string& theirs = have[std::size_t(leader_of(node))];
    wants[std::size_t(node)] = theirs.empty();
    if (theirs.empty()) continue;
    if (theirs == kSeveral || (!wanted.empty() && theirs != wanted)) return false;
    wanted = theirs;
    from = node;
  }
  if (wanted.empty()) return false;
  if (!buffers.empty()) state_.set_committed({.step = step, .buffer = std::uint32_t(buffers.front())});
  fill_from(from, wants);
  require(wanted, from);
  return true;
}

// From the committed state of a node to those that want it, where it becomes the committed one; with the share of the
// optimizer's state that each has of that step.
void NodeStates::fill_from(int node, const std::vector<bool>& wants) {
  const state::Layout& layout = state_.layout();
  const int here = group_.topology().node;
  const base::Commit now = state_.committed();
  struct Head {
    std::uint64_t step = 0;
  } head{now.step};
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  int to = 0, area = 0;
  if (leads() && here == node) {
    const int buffer = int(now.buffer);
    for (int other = 0; other < ranks_.nodes(); ++other) {
      if (!wants[std::size_t(other)] || other == node) continue;
      out.push_back({leader_of(other), std::as_bytes(std::span(&head, 1))});
      for (const auto& [begin, end] : layout.common(buffer))
        out.push_back({leader_of(other), {state_.read(begin), end - begin}});
      out.push_back(
          {leader_of(other), {state_.read(layout.frozen_area(state_.frozen_area(buffer))), layout.frozen_bytes()}});
    }
  } else if (leads() && wants[std::size_t(here)]) {
    state_.choose_target(now.step);
    to = state_.target(now.step);
    area = state::spare_frozen_area(state_, to);
    in.push_back({leader_of(node), std::as_writable_bytes(std::span(&head, 1))});
    for (const auto& [begin, end] : layout.common(to))
      in.push_back({leader_of(node), {state_.write(begin), end - begin}});
    in.push_back({leader_of(node), {state_.write(layout.frozen_area(area)), layout.frozen_bytes()}});
  }
  if (!out.empty() || !in.empty()) group_.wire()->exchange(note_of_step(0), out, in);
  if (!in.empty()) {
    if (in_shares())
      std::memcpy(state_.write(layout.optimizer_area(to)), state_.read(layout.optimizer_area(int(now.buffer))),
                  layout.optimizer_bytes());
    state_.set_frozen_area(to, area);
    state_.set_committed({.step = head.step, .buffer = std::uint32_t(to)});
  }
  group_.node().member.barrier();
}

void NodeStates::spread_edit() {
  edited_ = true;
  std::vector<bool> wants(std::size_t(ranks_.nodes()), true);
  wants[0] = false;
  fill_from(0, wants);
}

}  // namespace lockstep::parallel
