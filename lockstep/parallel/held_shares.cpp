#include "lockstep/parallel/held_shares.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lockstep/comm/collectives.h"

namespace lockstep::parallel {
namespace {

// What a rank tells of its node.
struct HeldNote {
  std::uint64_t set = 0, attempts = 0;
  std::int32_t node = 0, local_rank = 0, is_there = 0, shares = 1, share = 0, copied = 0;
};

}  // namespace

bool are_of_one(const state::HeldState& one, const state::HeldState& other) {
  if (!one.is_there || !other.is_there) return false;
  return &one == &other || (one.shares > 1 && one.shares == other.shares && one.set == other.set);
}

std::string why_not_in_place(const std::vector<state::HeldState>& nodes) {
  const auto there = std::ranges::find_if(nodes, &state::HeldState::is_there);
  if (there == nodes.end()) return "";
  const state::HeldState& first = *there;
  if (first.shares != int(nodes.size()))
    return "it is in " + std::to_string(first.shares) + (first.shares == 1 ? " share" : " shares") +
           ", and the nodes are " + std::to_string(nodes.size());
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const state::HeldState& held = nodes[node];
    const std::string who = "node " + std::to_string(node);
    if (!held.is_there) return who + " has nothing of it";
    if (!are_of_one(held, first)) return who + " has a share of another one";
    if (held.share != int(node)) return who + " has share " + std::to_string(held.share);
  }
  return "";
}

std::vector<int> holders_of_all(const std::vector<state::HeldState>& nodes) {
  std::vector<int> best;
  std::uint64_t attempts = 0;
  for (const state::HeldState& one : nodes) {
    if (!one.is_there || (!best.empty() && one.attempts <= attempts)) continue;
    constexpr int nobody = -1;
    std::vector<int> holders(std::size_t(one.shares), nobody);
    // Who has a copy first: whose share it is goes before.
    for (const bool copied : {true, false})
      for (std::size_t node = 0; node < nodes.size(); ++node) {
        const state::HeldState& other = nodes[node];
        if (!are_of_one(one, other) || (copied && !other.copied)) continue;
        holders[std::size_t((other.share + (copied ? one.shares - 1 : 0)) % one.shares)] = int(node);
      }
    if (std::ranges::find(holders, nobody) != holders.end()) continue;
    best = std::move(holders);
    attempts = one.attempts;
  }
  return best;
}

std::vector<state::HeldState> held_by_nodes(comm::Group& group, const std::string& name) {
  const comm::Topology& place = group.topology();
  HeldNote mine{.node = place.node, .local_rank = place.local_rank};
  if (base::Node* const node = group.shared_node()) {
    const state::HeldState held = state::held_in(node->segment, name);
    mine.set = held.set;
    mine.attempts = held.attempts;
    mine.is_there = held.is_there ? 1 : 0;
    mine.shares = held.shares;
    mine.share = held.share;
    mine.copied = held.copied ? 1 : 0;
  }
  std::vector<state::HeldState> nodes(std::size_t(place.nodes));
  for (const std::string& bytes :
       comm::all_gather_bytes(group, std::string(reinterpret_cast<const char*>(&mine), sizeof mine))) {
    HeldNote note;
    std::memcpy(&note, bytes.data(), sizeof note);
    if (note.local_rank == 0)
      nodes[std::size_t(note.node)] = {.is_there = note.is_there != 0,
                                       .set = note.set,
                                       .attempts = note.attempts,
                                       .shares = note.shares,
                                       .share = note.share,
                                       .copied = note.copied != 0};
  }
  return nodes;
}

}  // namespace lockstep::parallel
