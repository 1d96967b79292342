#include "lockstep/parallel/between_nodes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/tree.h"
#include "lockstep/comm/collectives.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kChunk = 1024;  // elements, summed while they are near

constexpr comm::CollectiveNote note_of(std::uint64_t step) {
  return {.collective = comm::Collective::step, .elements = std::int64_t(step)};
}

// What a rank tells of its node when the nodes meet.
struct NodeNote {
  std::int32_t node = 0, local_rank = 0, local_world = 1, from_before = 0;
  std::uint64_t step = 0, attempts = 0;
};

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

void widen(const void* from, c10::ScalarType type, std::size_t first, std::size_t n, float* to) {
  if (type == c10::ScalarType::Float) {
    std::memcpy(to, static_cast<const float*>(from) + first, n * sizeof(float));
    return;
  }
  const auto* const narrow = static_cast<const std::uint16_t*>(from) + first;
  for (std::size_t i = 0; i < n; ++i) to[i] = std::bit_cast<float>(std::uint32_t(narrow[i]) << 16);
}

// Elements [first, first + n) of what the shards [lo, hi) add up to in tree order; `operands` are sums of subtrees.
template <class Operand>
void add_tree(int lo, int hi, const std::vector<Operand>& operands, std::size_t first, std::size_t n, float* to) {
  for (const Operand& operand : operands)
    if (operand.shards == ShardSpan{lo, hi}) return widen(operand.data, operand.type, first, n, to);
  const int middle = lo + base::tree_split(hi - lo);
  add_tree(lo, middle, operands, first, n, to);
  float right[kChunk];
  add_tree(middle, hi, operands, first, n, right);
  for (std::size_t i = 0; i < n; ++i) to[i] += right[i];
}

template <class Operand>
void add(ShardSpan shards, const std::vector<Operand>& operands, std::size_t elements, float* to) {
  for (std::size_t first = 0; first < elements; first += kChunk)
    add_tree(shards.first, shards.last, operands, first, std::min(kChunk, elements - first), to + first);
}

std::span<const std::byte> bytes_at(const void* data, std::size_t size) {
  return {static_cast<const std::byte*>(data), size};
}

}  // namespace

BetweenNodes::BetweenNodes(state::SharedState& state, comm::Group& group)
    : state_(state), group_(group), wire_(*group.wire()) {
  agree();
  plan();
}

// ---- one state

void BetweenNodes::agree() {
  const comm::Topology& place = group_.topology();
  const std::vector<NodeNote> notes = gather_notes(group_, NodeNote{.node = place.node,
                                                                    .local_rank = place.local_rank,
                                                                    .local_world = place.local_world,
                                                                    .from_before = state_.taken_over(),
                                                                    .step = state_.committed().step,
                                                                    .attempts = state_.attempts()});
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
    if (counts(node)) newest = std::max(newest, node.attempts);
  const auto is_current = [&](const NodeNote& node) { return counts(node) && node.attempts == newest; };
  std::uint64_t step = UINT64_MAX;
  for (const NodeNote& node : nodes)
    if (is_current(node)) step = std::min(step, node.step);
  int from = 0;
  while (!is_current(nodes[std::size_t(from)]) || nodes[std::size_t(from)].step != step) ++from;
  const auto hash = [&] { return state_.buffer_hash(int(state_.committed().buffer)); };
  const std::string wanted = comm::broadcast_bytes(group_, hash(), leader_of(from));
  if (leads()) go_back_to(wanted);
  group_.node().member.barrier();
  std::vector<bool> wants(nodes.size());
  const std::vector<std::string> have = comm::all_gather_bytes(group_, hash());
  for (std::size_t node = 0; node < nodes.size(); ++node)
    wants[node] = have[std::size_t(leader_of(int(node)))] != wanted;
  fill_from(from, wants);
  if (hash() != wanted)
    throw Error("node " + std::to_string(place.node) + " has got another state from node " + std::to_string(from) +
                " than that has");
  if (leads()) state_.publish(newest + 1);
}

// A node that is ahead has the state in another buffer, mostly; who has it nowhere gets it from a peer.
void BetweenNodes::go_back_to(const std::string& wanted) {
  const int now = int(state_.committed().buffer);
  const state::Layout& layout = state_.layout();
  if (state_.buffer_hash(now) == wanted) return;
  for (int buffer = 0; state_.taken_over() && buffer < layout.options().state_buffers; ++buffer)
    if (buffer != now && state_.buffer_hash(buffer) == wanted)
      return state_.set_committed({.step = state_.read_as<state::StepRecord>(layout.step_record(buffer))->step,
                                   .buffer = std::uint32_t(buffer)});
}

// From the committed state of a node to those that want it, where it becomes the committed one.
void BetweenNodes::fill_from(int node, const std::vector<bool>& wants) {
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
      out.push_back({leader_of(other), bytes_at(&head, sizeof head)});
      out.push_back({leader_of(other), {state_.read(layout.weights(buffer)), layout.content_bytes()}});
      out.push_back(
          {leader_of(other), {state_.read(layout.frozen_area(state_.frozen_area(buffer))), layout.frozen_bytes()}});
    }
  } else if (leads() && wants[std::size_t(here)]) {
    state_.choose_target(now.step);
    to = state_.target(now.step);
    area = state::spare_frozen_area(state_, to);
    in.push_back({leader_of(node), {reinterpret_cast<std::byte*>(&head), sizeof head}});
    in.push_back({leader_of(node), {state_.write(layout.weights(to)), layout.content_bytes()}});
    in.push_back({leader_of(node), {state_.write(layout.frozen_area(area)), layout.frozen_bytes()}});
  }
  if (!out.empty() || !in.empty()) wire_.exchange(note_of(0), out, in);
  if (!in.empty()) {
    state_.set_frozen_area(to, area);
    state_.set_committed({.step = head.step, .buffer = std::uint32_t(to)});
  }
  group_.node().member.barrier();
}

void BetweenNodes::spread_edit() {
  std::vector<bool> wants(std::size_t(ranks_.nodes()), true);
  wants[0] = false;
  fill_from(0, wants);
}

// ---- a step

void BetweenNodes::plan() {
  const comm::Topology& place = group_.topology();
  const state::Layout& layout = state_.layout();
  const int shards = layout.options().shards;
  const ShardSpan mine = ranks_.shards_of(place.node, shards);
  for (const ExchangePiece& where : exchange_pieces(layout, ranks_, place.node, place.local_rank)) {
    Piece piece{.place = where};
    const std::size_t elements = where.range.end - where.range.begin;
    const state::Part& part = layout.part_at(where.range.begin);
    const auto slot_of = [&](int shard) {
      const std::size_t offset = layout.gradients(shard - mine.first) + part.offset +
                                 (where.range.begin - part.range.begin) * c10::elementSize(part.gradients);
      return Operand{{shard, shard + 1}, state_.read(offset), part.gradients};
    };
    for (int shard = mine.first; shard < mine.last; ++shard) piece.all.push_back(slot_of(shard));
    if (where.owner != place.node) {
      for (const ShardSpan& subtree : whole_subtrees(shards, mine)) {
        if (subtree.count() == 1) {
          piece.own.push_back(slot_of(subtree.first));
        } else {
          piece.sums.emplace_back(elements);
          piece.own.push_back({subtree, piece.sums.back().data(), c10::ScalarType::Float});
        }
      }
    } else {
      for (int node = 0; node < ranks_.nodes(); ++node) {
        if (node == place.node) continue;
        for (const ShardSpan& subtree : whole_subtrees(shards, ranks_.shards_of(node, shards))) {
          const c10::ScalarType type = subtree.count() == 1 ? part.gradients : c10::ScalarType::Float;
          piece.received.emplace_back(elements * c10::elementSize(type));
          piece.all.push_back({subtree, piece.received.back().data(), type});
        }
      }
    }
    pieces_.push_back(std::move(piece));
  }
}

float* BetweenNodes::sums_at(std::size_t element) const {
  return state_.write_as<float>(state_.layout().gradient_sums()) + element;
}

void BetweenNodes::exchange(std::uint64_t step) {
  const comm::Topology& place = group_.topology();
  const int shards = state_.layout().options().shards;
  const auto size_of = [](const Operand& operand, std::size_t elements) {
    return elements * c10::elementSize(operand.type);
  };
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  for (Piece& piece : pieces_) {
    const std::size_t elements = piece.place.range.end - piece.place.range.begin;
    const auto holder = [&](int node) { return piece.place.holders[std::size_t(node)]; };
    if (piece.place.owner != place.node) {
      std::size_t sum = 0;
      for (const Operand& operand : piece.own) {
        if (operand.shards.count() > 1) add(operand.shards, piece.all, elements, piece.sums[sum++].data());
        out.push_back({holder(piece.place.owner), bytes_at(operand.data, size_of(operand, elements))});
      }
      continue;
    }
    std::size_t next = 0;
    for (int node = 0; node < ranks_.nodes(); ++node) {
      if (node == place.node) continue;
      for (std::size_t i = whole_subtrees(shards, ranks_.shards_of(node, shards)).size(); i > 0; --i)
        in.push_back({holder(node), piece.received[next++]});
    }
  }
  if (leads()) {
    pack(packed_);
    unpacked_.resize(std::size_t(ranks_.nodes()));
    for (int node = 0; node < ranks_.nodes(); ++node) {
      if (node == place.node) continue;
      unpacked_[std::size_t(node)].resize(bytes_told_by(node));
      out.push_back({leader_of(node), packed_});
      in.push_back({leader_of(node), unpacked_[std::size_t(node)]});
    }
  }
  wire_.exchange(note_of(step), out, in);
  out.clear();
  in.clear();
  for (Piece& piece : pieces_) {
    const auto [begin, end] = piece.place.range;
    float* const sums = sums_at(begin);
    const std::span<float> room(sums, end - begin);
    if (piece.place.owner == place.node) {
      add({0, shards}, piece.all, end - begin, sums);
      for (int node = 0; node < ranks_.nodes(); ++node)
        if (node != place.node) out.push_back({piece.place.holders[std::size_t(node)], std::as_bytes(room)});
    } else {
      in.push_back({piece.place.holders[std::size_t(piece.place.owner)], std::as_writable_bytes(room)});
    }
  }
  wire_.exchange(note_of(step), out, in);
  if (!leads()) return;
  for (int node = 0; node < ranks_.nodes(); ++node)
    if (node != place.node) unpack(node);
}

void BetweenNodes::share_rank_zeros(std::uint64_t step, int to) {
  const state::Layout& layout = state_.layout();
  const std::pair<std::size_t, std::size_t> places[] = {{layout.module_buffers(to), layout.module_buffer_bytes()},
                                                        {layout.named_bytes(to, 0), kept_bytes(layout)}};
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  for (const auto& [offset, bytes] : places) {
    if (bytes == 0) continue;
    if (group_.rank() != 0) in.push_back({0, {state_.write(offset), bytes}});
    for (int node = 1; node < ranks_.nodes() && group_.rank() == 0; ++node)
      out.push_back({leader_of(node), {state_.read(offset), bytes}});
  }
  if (!out.empty() || !in.empty()) wire_.exchange(note_of(step), out, in);
}

// What this node's shards tell: uses and record of each.
void BetweenNodes::pack(std::vector<std::byte>& to) const {
  const state::Layout& layout = state_.layout();
  const ShardSpan mine = ranks_.shards_of(group_.topology().node, layout.options().shards);
  to.resize(bytes_told_by(group_.topology().node));
  const std::size_t bytes = told_bytes_of_shard(layout);
  std::byte* at = to.data();
  for (int shard = mine.first; shard < mine.last; ++shard, at += bytes)
    std::memcpy(at, state_.read(layout.uses(shard)), bytes);
}

void BetweenNodes::unpack(int node) const {
  const state::Layout& layout = state_.layout();
  const ShardSpan theirs = ranks_.shards_of(node, layout.options().shards);
  const std::size_t bytes = told_bytes_of_shard(layout);
  const std::byte* at = unpacked_[std::size_t(node)].data();
  for (int shard = theirs.first; shard < theirs.last; ++shard, at += bytes)
    std::memcpy(state_.write(layout.uses(shard)), at, bytes);
}

std::size_t BetweenNodes::bytes_told_by(int node) const {
  const state::Layout& layout = state_.layout();
  return std::size_t(ranks_.shards_of(node, layout.options().shards).count()) * told_bytes_of_shard(layout);
}

}  // namespace lockstep::parallel
