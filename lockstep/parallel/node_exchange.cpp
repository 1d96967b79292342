#include "lockstep/parallel/node_exchange.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace lockstep::parallel {

NodeExchange::NodeExchange(const state::SharedState& state, const comm::Topology& place, NodeRanks ranks,
                           std::vector<Wave> waves, const SumOptions& options)
    : state_(state),
      place_(place),
      ranks_(std::move(ranks)),
      waves_(std::move(waves)),
      options_(options),
      summation_(options.compression, state.layout().options().shards),
      unpacked_(std::size_t(ranks_.nodes())) {
  plan();
}

void NodeExchange::plan() {
  const state::Layout& layout = state_.layout();
  const int shards = layout.options().shards;
  const ShardSpan mine = ranks_.shards_of(place_.node, shards);
  const bool fast = options_.reduction == Reduction::fast;
  for (const ExchangePiece& where : exchange_pieces(layout, ranks_, place_.node, place_.local_rank, waves_)) {
    Piece piece{.place = where};
    const std::size_t elements = where.range.end - where.range.begin;
    const state::Part& part = layout.part_at(where.range.begin);
    const auto slot_of = [&](int shard) {
      const std::size_t offset = layout.gradients(shard - mine.first) + part.offset +
                                 (where.range.begin - part.range.begin) * c10::elementSize(part.gradients);
      return Operand{{shard, shard + 1}, state_.read(offset), part.gradients};
    };
    const auto type_of = [&](ShardSpan span) { return sum_type(part.gradients, span.count(), options_.compression); };
    const auto sum_of = [&](ShardSpan span) {
      const c10::ScalarType type = type_of(span);
      if (span.count() == 1 && type == part.gradients) return slot_of(span.first);
      piece.sums.emplace_back(elements * c10::elementSize(type));
      return Operand{span, piece.sums.back().data(), type};
    };
    for (int shard = mine.first; shard < mine.last; ++shard) piece.slots.push_back(slot_of(shard));
    if (!adds(piece) || where.copier >= 0 || fast)
      for (const ShardSpan& span : operands_of(shards, mine, options_.reduction)) piece.own.push_back(sum_of(span));
    for (int node = 0; adds(piece) && node < ranks_.nodes(); ++node) {
      const ShardSpan leaf{node, node + 1};
      if (node == place_.node) {
        for (const Operand& ours : fast ? piece.own : piece.slots)
          piece.all.push_back({fast ? leaf : ours.shards, ours.data, ours.type});
        continue;
      }
      for (const ShardSpan& span : operands_of(shards, ranks_.shards_of(node, shards), options_.reduction)) {
        piece.received.emplace_back(elements * c10::elementSize(type_of(span)));
        piece.all.push_back({fast ? leaf : span, piece.received.back().data(), type_of(span)});
      }
    }
    const bool has_sum = adds(piece) || layout.options().shares == 1;
    if (summation_.rounds() && has_sum) piece.rounded.resize(elements * c10::elementSize(type_of({0, shards})));
    const std::span<float> place(sums_at(where.range.begin), elements);
    piece.total = piece.rounded.empty() ? std::as_writable_bytes(place) : std::span<std::byte>(piece.rounded);
    pieces_.push_back(std::move(piece));
  }
}

void NodeExchange::carry(std::uint64_t step, int number, comm::Wire& wire) {
  Moves moves;
  const bool gathers = state_.layout().options().shares == 1;
  for (Piece& piece : pieces_of(number)) move_operands(piece, moves);
  for (const Piece& piece : pieces_of(number - 1))
    if (gathers) move_sums(piece, moves);
  const bool tells = leads() && number + 1 == exchanges();
  if (tells) move_told(moves);
  if (moves.out.empty() && moves.in.empty()) return;
  wire.exchange(note_of_step(step, number), moves.out, moves.in);
  const int leaves = options_.reduction == Reduction::fast ? ranks_.nodes() : state_.layout().options().shards;
  // Who adds up a piece has of its sum what the others get.
  const auto widen = [&](const Piece& piece) {
    const auto [begin, end] = piece.place.range;
    if (!piece.rounded.empty()) summation_.widen(piece.rounded.data(), end - begin, sums_at(begin));
  };
  for (Piece& piece : pieces_of(number)) {
    if (!adds(piece)) continue;
    summation_.add({0, leaves}, piece.all, piece.place.range.end - piece.place.range.begin, piece.total.data());
    widen(piece);
  }
  for (const Piece& piece : pieces_of(number - 1))
    if (gathers && !owns(piece)) widen(piece);
  for (int node = 0; tells && node < ranks_.nodes(); ++node)
    if (node != place_.node) unpack(node);
}

// Of one that there is not, none.
std::span<NodeExchange::Piece> NodeExchange::pieces_of(int wave) {
  const auto wave_of = [](const Piece& piece) { return piece.place.wave; };
  return {std::ranges::lower_bound(pieces_, wave, {}, wave_of), std::ranges::upper_bound(pieces_, wave, {}, wave_of)};
}

// What this node's shards add up to, to who adds up the piece; what those of the others do, where this node does that.
void NodeExchange::move_operands(Piece& piece, Moves& moves) {
  const std::size_t elements = piece.place.range.end - piece.place.range.begin;
  const auto holder = [&](int node) { return piece.place.holders[std::size_t(node)]; };
  std::size_t sum = 0;
  for (const Operand& operand : piece.own) {
    const bool lies_in_slot = operand.shards.count() == 1 && operand.type == piece.slots.front().type;
    if (!lies_in_slot) summation_.add(operand.shards, piece.slots, elements, piece.sums[sum++].data());
    const std::span bytes(static_cast<const std::byte*>(operand.data), elements * c10::elementSize(operand.type));
    for (const int node : {piece.place.owner, piece.place.copier})
      if (node >= 0 && node != place_.node) moves.out.push_back({holder(node), bytes});
  }
  const int shards = state_.layout().options().shards;
  std::size_t next = 0;
  for (int node = 0; adds(piece) && node < ranks_.nodes(); ++node) {
    if (node == place_.node) continue;
    for (std::size_t i = operands_of(shards, ranks_.shards_of(node, shards), options_.reduction).size(); i > 0; --i)
      moves.in.push_back({holder(node), piece.received[next++]});
  }
}

// The other way.
void NodeExchange::move_sums(const Piece& piece, Moves& moves) const {
  if (!owns(piece)) {
    moves.in.push_back({piece.place.holders[std::size_t(piece.place.owner)], piece.total});
    return;
  }
  for (int node = 0; node < ranks_.nodes(); ++node)
    if (node != place_.node) moves.out.push_back({piece.place.holders[std::size_t(node)], piece.total});
}

// Between the first ranks of nodes.
void NodeExchange::move_told(Moves& moves) {
  pack();
  for (int node = 0; node < ranks_.nodes(); ++node) {
    if (node == place_.node) continue;
    std::vector<std::byte>& room = unpacked_[std::size_t(node)];
    room.resize(bytes_told_by(node));
    moves.out.push_back({ranks_.first(node), packed_});
    moves.in.push_back({ranks_.first(node), room});
  }
}

float* NodeExchange::sums_at(std::size_t element) const {
  return state_.write_as<float>(state_.layout().gradient_sums()) + element;
}

// What this node's shards tell: uses and record of each.
void NodeExchange::pack() {
  const state::Layout& layout = state_.layout();
  const ShardSpan mine = ranks_.shards_of(place_.node, layout.options().shards);
  packed_.resize(bytes_told_by(place_.node));
  const std::size_t bytes = told_bytes_of_shard(layout);
  std::byte* at = packed_.data();
  for (int shard = mine.first; shard < mine.last; ++shard, at += bytes)
    std::memcpy(at, state_.read(layout.uses(shard)), bytes);
}

void NodeExchange::unpack(int node) const {
  const state::Layout& layout = state_.layout();
  const ShardSpan theirs = ranks_.shards_of(node, layout.options().shards);
  const std::size_t bytes = told_bytes_of_shard(layout);
  const std::byte* at = unpacked_[std::size_t(node)].data();
  for (int shard = theirs.first; shard < theirs.last; ++shard, at += bytes)
    std::memcpy(state_.write(layout.uses(shard)), at, bytes);
}

std::size_t NodeExchange::bytes_told_by(int node) const {
  const state::Layout& layout = state_.layout();
  return std::size_t(ranks_.shards_of(node, layout.options().shards).count()) * told_bytes_of_shard(layout);
}

}  // namespace lockstep::parallel
