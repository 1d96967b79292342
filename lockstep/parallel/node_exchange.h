#pragma once

// What a rank sends to those of other nodes in a step, and what it makes of what comes: its pieces of the flat range
// (exchange_plan.h) with the memory for the sums of other nodes' shards. docs/design/nodes.md, "A step".

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/comm/collective_note.h"
#include "lockstep/comm/network/wire.h"
#include "lockstep/comm/topology.h"
#include "lockstep/parallel/exchange_plan.h"
#include "lockstep/parallel/summation.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::parallel {

/// What a message between nodes says of itself: its step, and of the exchanges of that the number of its own.
constexpr comm::CollectiveNote note_of_step(std::uint64_t step, int number = 0) {
  return {.collective = comm::Collective::step, .detail = std::uint16_t(number), .elements = std::int64_t(step)};
}

class NodeExchange {
 public:
  /// Of the rank in this place. The state must outlive this.
  NodeExchange(const state::SharedState& state, const comm::Topology& place, NodeRanks ranks, std::vector<Wave> waves,
               const SumOptions& options);

  const std::vector<Wave>& waves() const { return waves_; }
  /// How many a step has, which all ranks make in their order: one more than waves.
  int exchanges() const { return int(waves_.size()) + 1; }

  /// Exchange `number` of a step, from 0 on: what this node's shards add up to in wave `number` goes to the owners, and
  /// the sums of the wave before to everybody, unless the owners update alone what they own (state::LayoutOptions::
  /// shares); with the last, which has no wave of its own, what the shards tell. When all ranks of the node have that
  /// in its place, where it stays as it is until the step is over. Behind the last one this rank's slice has its sums,
  /// as far as somebody here updates it, and, from local rank 0, the node what all shards tell.
  void carry(std::uint64_t step, int number, comm::Wire& wire);

 private:
  struct Piece {
    ExchangePiece place;
    std::vector<Operand> slots;                    ///< of this node's shards
    std::vector<Operand> own;                      ///< what this node adds up before the nodes exchange it
    std::vector<std::vector<std::byte>> sums;      ///< of those that do not travel as they lie in their slots
    std::vector<Operand> all;                      ///< what it adds up behind that, where it is to add up the piece
    std::vector<std::vector<std::byte>> received;  ///< of those, the ones of other nodes
    std::vector<std::byte> rounded;                ///< what all shards add up to, in 16 bits; empty where it is float32
    std::span<std::byte> total;                    ///< that, or its place among the sums of the state: as it travels
  };
  struct Moves {
    std::vector<comm::Outgoing> out;
    std::vector<comm::Incoming> in;
  };

  bool leads() const { return place_.local_rank == 0; }
  bool owns(const Piece& piece) const { return piece.place.owner == place_.node; }
  bool adds(const Piece& piece) const { return piece.place.is_added_by(place_.node); }
  void plan();
  std::span<Piece> pieces_of(int wave);
  void move_operands(Piece& piece, Moves& moves);
  void move_sums(const Piece& piece, Moves& moves) const;
  void move_told(Moves& moves);
  float* sums_at(std::size_t element) const;
  void pack();
  void unpack(int node) const;
  std::size_t bytes_told_by(int node) const;

  const state::SharedState& state_;
  const comm::Topology place_;
  const NodeRanks ranks_;
  const std::vector<Wave> waves_;
  const SumOptions options_;
  const Summation summation_;
  std::vector<Piece> pieces_;                     ///< wave after wave
  std::vector<std::byte> packed_;                 ///< what this node's shards tell
  std::vector<std::vector<std::byte>> unpacked_;  ///< by node
};

}  // namespace lockstep::parallel
