#include "lockstep/parallel/share_exchange.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "lockstep/comm/network/wire.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/parallel/node_exchange.h"

namespace lockstep::parallel {
namespace {

// Of a share, in an array of all elements.
std::span<float> part_of(std::vector<float>& array, const state::Slice& share) {
  return std::span(array).subspan(share.begin, share.end - share.begin);
}

}  // namespace

// In one wave: the weights go out when all of them are there.
ShareExchange::ShareExchange(const state::SharedState& state, comm::Group& group, const NodeRanks& ranks)
    : state_(state),
      group_(group),
      ranks_(ranks),
      pieces_(exchange_pieces(state.layout(), ranks, group.topology().node, group.topology().local_rank,
                              waves_of(state.layout(), 0))) {
  for (const ExchangePiece& piece : pieces_)
    if (!piece.is_added_by(group.topology().node)) received_.push_back(piece.range);
}

void ShareExchange::share_weights(std::uint64_t step, int to) const {
  const std::size_t weights = state_.layout().weights(to);
  const int here = group_.topology().node;
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  for (const ExchangePiece& piece : pieces_) {
    const std::size_t begin = weights + piece.range.begin * sizeof(float);
    const std::size_t bytes = (piece.range.end - piece.range.begin) * sizeof(float);
    if (!piece.is_added_by(here)) in.push_back({piece.holders[std::size_t(piece.owner)], {state_.write(begin), bytes}});
    for (int node = 0; piece.owner == here && node < ranks_.nodes(); ++node)
      if (!piece.is_added_by(node)) out.push_back({piece.holders[std::size_t(node)], {state_.read(begin), bytes}});
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

std::vector<int> leaders_of(comm::Group& group) {
  const comm::Topology& place = group.topology();
  const std::vector<at::Tensor> nodes = group.all_gather(at::full({1}, std::int64_t(place.node), at::kLong));
  std::vector<int> leaders(std::size_t(place.nodes), 0);
  for (int rank = place.world - 1; rank >= 0; --rank)
    leaders[std::size_t(nodes[std::size_t(rank)].item<std::int64_t>())] = rank;
  return leaders;
}

state::WholeArrays gather_arrays(const state::SharedState& state, comm::Group& group) {
  const state::Layout& layout = state.layout();
  const comm::Topology& place = group.topology();
  state::WholeArrays whole;
  if (layout.options().shares == 1) return whole;
  comm::or_abort(group, [&] {
    const std::vector<int> leaders = leaders_of(group);
    if (place.local_rank != 0) return;
    const int arrays = layout.options().optimizer_arrays, buffer = int(state.committed().buffer);
    if (place.rank == 0) whole.assign(std::size_t(arrays), std::vector<float>(layout.elements()));
    std::vector<comm::Outgoing> out;
    std::vector<comm::Incoming> in;
    for (int array = 0; array < arrays; ++array) {
      const state::Slice share = layout.share();
      const std::span<const float> mine(state.read_as<float>(layout.optimizer_array(buffer, array)) + share.begin,
                                        share.end - share.begin);
      if (place.rank != 0) {
        if (!mine.empty()) out.push_back({0, std::as_bytes(mine)});
        continue;
      }
      std::ranges::copy(mine, part_of(whole[std::size_t(array)], share).begin());
      for (int node = 1; node < place.nodes; ++node)
        if (const auto room = part_of(whole[std::size_t(array)], layout.share(node)); !room.empty())
          in.push_back({leaders[std::size_t(node)], std::as_writable_bytes(room)});
    }
    if (!out.empty() || !in.empty()) group.wire()->exchange(note_of_step(0), out, in);
  });
  return whole;
}

}  // namespace lockstep::parallel
