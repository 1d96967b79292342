#pragma once

// What a rank sends to those of other nodes in a step, and what it makes of what comes: its pieces of the flat range
// (exchange_plan.h) with the memory for the sums of other nodes' shards. docs/design/nodes.md, "A step".

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/comm/collective_note.h"
#include "lockstep/comm/network/wire.h"
#include "lockstep/comm/topology.h"
#include "lockstep/parallel/exchange_plan.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::parallel {

/// What a message between nodes says of itself.
constexpr comm::CollectiveNote note_of_step(std::uint64_t step) {
  return {.collective = comm::Collective::step, .elements = std::int64_t(step)};
}

class NodeExchange {
 public:
  /// Of the rank in this place. The state must outlive this.
  NodeExchange(const state::SharedState& state, const comm::Topology& place, NodeRanks ranks);

  /// When all ranks of the node have their gradients, uses and records in their places: brings those of all nodes'
  /// shards to theirs, and the sums of all gradients in this rank's slice.
  void run(std::uint64_t step, comm::Wire& wire);

 private:
  /// The sum of a subtree of shards over a piece, as it travels.
  struct Operand {
    ShardSpan shards;
    const void* data = nullptr;
    c10::ScalarType type = c10::ScalarType::Float;
  };
  struct Piece {
    ExchangePiece place;
    std::vector<Operand> all;                      ///< this node's slots, and what it receives where it owns the piece
    std::vector<std::vector<std::byte>> received;  ///< by subtree of the other nodes
    std::vector<Operand> own;                      ///< what this node sends where another one owns it
    std::vector<std::vector<float>> sums;          ///< of those of several shards
  };
  struct Moves {
    std::vector<comm::Outgoing> out;
    std::vector<comm::Incoming> in;
  };

  bool leads() const { return place_.local_rank == 0; }
  bool owns(const Piece& piece) const { return piece.place.owner == place_.node; }
  void plan();
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
  std::vector<Piece> pieces_;
  std::vector<std::byte> packed_;                 ///< what this node's shards tell
  std::vector<std::vector<std::byte>> unpacked_;  ///< by node
};

}  // namespace lockstep::parallel
