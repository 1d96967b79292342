#include "lockstep/parallel/held_shares.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lockstep/comm/collectives.h"

namespace lockstep::parallel {
namespace {

// What a rank tells of its node.
struct HeldNote {
  std::uint64_t set = 0;
  std::int32_t node = 0, local_rank = 0, is_there = 0, shares = 1, share = 0, reserved = 0;
};

bool has_any(const std::vector<state::HeldState>& nodes) {
  return std::ranges::any_of(nodes, &state::HeldState::is_there);
}

}  // namespace

std::string why_not_whole(const std::vector<state::HeldState>& nodes) {
  if (!has_any(nodes)) return "";
  const state::HeldState& first = *std::ranges::find_if(nodes, &state::HeldState::is_there);
  if (first.shares != int(nodes.size()))
    return "it is in " + std::to_string(first.shares) + (first.shares == 1 ? " share" : " shares") +
           ", and the nodes are " + std::to_string(nodes.size());
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const state::HeldState& held = nodes[node];
    const std::string who = "node " + std::to_string(node);
    if (!held.is_there) return who + " has nothing of it";
    if (held.set != first.set || held.shares != first.shares) return who + " has a share of another one";
    if (held.share != int(node)) return who + " has share " + std::to_string(held.share);
  }
  return "";
}

std::vector<state::HeldState> held_by_nodes(comm::Group& group, const std::string& name) {
  const comm::Topology& place = group.topology();
  HeldNote mine{.node = place.node, .local_rank = place.local_rank};
  if (base::Node* const node = group.shared_node()) {
    const state::HeldState held = state::held_in(node->segment, name);
    mine.set = held.set;
    mine.is_there = held.is_there ? 1 : 0;
    mine.shares = held.shares;
    mine.share = held.share;
  }
  std::vector<state::HeldState> nodes(std::size_t(place.nodes));
  for (const std::string& bytes :
       comm::all_gather_bytes(group, std::string(reinterpret_cast<const char*>(&mine), sizeof mine))) {
    HeldNote note;
    std::memcpy(&note, bytes.data(), sizeof note);
    if (note.local_rank == 0)
      nodes[std::size_t(note.node)] = {
          .is_there = note.is_there != 0, .set = note.set, .shares = note.shares, .share = note.share};
  }
  return nodes;
}

bool have_whole_state(comm::Group& group, const std::string& name) {
  const std::vector<state::HeldState> nodes = held_by_nodes(group, name);
  return has_any(nodes) && why_not_whole(nodes).empty();
}

std::string forget_unless_whole(comm::Group& group, const std::string& name) {
  std::string why = why_not_whole(held_by_nodes(group, name));
  if (why.empty()) return why;
  base::Node& node = group.node();
  if (group.topology().local_rank == 0) state::forget(node.segment, name);
  node.member.barrier();  // nobody looks for it before
  return why;
}

}  // namespace lockstep::parallel
