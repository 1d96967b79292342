#include "lockstep/parallel/share_exchange.h"

#include <cstddef>
#include <span>

#include "lockstep/comm/network/wire.h"
#include "lockstep/parallel/node_exchange.h"

namespace lockstep::parallel {

// In one wave: the weights go out when all of them are there.
ShareExchange::ShareExchange(const state::SharedState& state, comm::Group& group, const NodeRanks& ranks)
    : state_(state),
      group_(group),
      ranks_(ranks),
      pieces_(exchange_pieces(state.layout(), ranks, group.topology().node, group.topology().local_rank,
                              waves_of(state.layout(), 0))) {
  for (const ExchangePiece& piece : pieces_)
    if (piece.owner != group.topology().node) received_.push_back(piece.range);
}

void ShareExchange::share_weights(std::uint64_t step, int to) const {
  const std::size_t weights = state_.layout().weights(to);
  const int here = group_.topology().node;
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  for (const ExchangePiece& piece : pieces_) {
    const std::size_t begin = weights + piece.range.begin * sizeof(float);
    const std::size_t bytes = (piece.range.end - piece.range.begin) * sizeof(float);
    if (piece.owner != here) in.push_back({piece.holders[std::size_t(piece.owner)], {state_.write(begin), bytes}});
    for (int node = 0; piece.owner == here && node < ranks_.nodes(); ++node)
      if (node != here) out.push_back({piece.holders[std::size_t(node)], {state_.read(begin), bytes}});
  }
  if (!out.empty() || !in.empty()) group_.wire()->exchange(note_of_step(step), out, in);
}

void ShareExchange::share_block_sums(std::uint64_t step) const {
  const state::Layout& layout = state_.layout();
  const int here = group_.topology().node;
  // Of share `number`, where this node has them or is to have them.
  const auto room = [&](int number) {
    const state::Slice blocks = layout.blocks_of_share(number);
    const std::size_t begin = layout.block_sums() + blocks.begin * sizeof(double);
    return std::span<std::byte>(state_.write(begin), (blocks.end - blocks.begin) * sizeof(double));
  };
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  for (int node = 0; node < ranks_.nodes(); ++node) {
    if (node == here) continue;
    if (!room(here).empty()) out.push_back({ranks_.first(node), room(here)});
    if (!room(node).empty()) in.push_back({ranks_.first(node), room(node)});
  }
  if (!out.empty() || !in.empty()) group_.wire()->exchange(note_of_step(step), out, in);
}

}  // namespace lockstep::parallel
