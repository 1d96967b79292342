#pragma once

// What the nodes of a job send each other in a step for all to have the sums of all shards' gradients. Pure functions.
//
// Sums are made along the fixed tree over the shards (base/tree.h), so a node can send what its shards add up to only
// where they are a whole subtree of it: the maximal ones among its shards. They go to the node that owns a piece of
// the flat range, whose rank adds them up in tree order and sends the sum to all others. Where each node has one
// aligned run of 2^k shards, these are the bytes of a ring. With Reduction::fast a node sends one sum, along the tree
// over its own shards, and the owner adds those along the tree over the nodes. With a Compression all of it travels in
// 16 bits (summation.h).
//
// Where the nodes share out the optimizer's state (state::LayoutOptions::shares), who has a share owns what lies in it,
// updates that, and sends the new weights in place of the sums: as many bytes. Where the next node has a copy of the
// share it gets the same gradients, and no weights: half as many bytes more, for many nodes.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/parallel/options.h"
#include "lockstep/parallel/shards.h"
#include "lockstep/state/layout.h"

namespace lockstep::parallel {

/// The nodes of a job: what each has of its ranks, which follow one another.
struct NodeRanks {
  std::vector<int> counts;  ///< by node

  int first(int node) const;
  int world() const { return first(int(counts.size())); }
  int nodes() const { return int(counts.size()); }
  /// The shards that a node computes.
  ShardSpan shards_of(int node, int shards) const;
};

/// Parameters [first, last) of a layout, and where their gradients lie in the flat range: what goes out together.
struct Wave {
  std::size_t first = 0, last = 0;
  std::vector<state::Slice> ranges = {};  ///< rising
};

/// The layout's parameters from the last one on, as backward mostly comes to them. A wave ends where its sums take
/// `bytes`, or more where there would be over a thousand waves; 0: there is one of all. Together they cover the range.
std::vector<Wave> waves_of(const state::Layout& layout, std::size_t bytes);

/// A part of the flat range, of one kind of gradients and in one wave, that one rank of each node has in its slice; of
/// one share, of which each rank of a node has a slice, where the nodes share out the optimizer's state.
struct ExchangePiece {
  /// Whether this node adds it up.
  bool is_added_by(int node) const { return node == owner || node == copier; }

  state::Slice range;
  int owner = 0;             ///< node
  int copier = -1;           ///< node that adds it up and updates it as well (state::LayoutOptions::copied); -1: none
  std::vector<int> holders;  ///< by node: the rank in the world
  int wave = 0;
};

/// The pieces of the slice of local rank `local` of `node`, wave after wave, in rising order in each. Every rank that
/// has a piece in its slice gets the same one, and all have those that they share in the same order.
std::vector<ExchangePiece> exchange_pieces(const state::Layout& layout, const NodeRanks& ranks, int node, int local,
                                           const std::vector<Wave>& waves);

/// The runs of a node's shards `held` of whose sums the job's are made: what it sends of a piece that it does not own.
std::vector<ShardSpan> operands_of(int shards, ShardSpan held, Reduction reduction);

/// How sums are made and sent.
struct SumOptions {
  Reduction reduction = Reduction::exact;
  Compression compression = Compression::none;
};

/// The payload bytes of gradients and their sums, or new weights, that all ranks of `node` send in a step.
std::uint64_t sent_bytes(const state::Layout& layout, const NodeRanks& ranks, int node, const std::vector<Wave>& waves,
                         const SumOptions& options);

/// As many more a step sends that asks for a norm of the gradients, where the nodes share out the optimizer's state:
/// sums over blocks.
std::uint64_t block_sum_bytes(const state::Layout& layout, int node);

/// What is told of a shard besides its gradients: which parameters it used, and its record.
std::size_t told_bytes_of_shard(const state::Layout& layout);

/// Of the bytes that the job keeps beside the weights.
std::size_t kept_bytes(const state::Layout& layout);

/// The payload bytes of the rest: what is told of the node's shards, and, from node 0, module buffers and kept bytes.
std::uint64_t told_bytes(const state::Layout& layout, const NodeRanks& ranks, int node);

/// What all nodes send in a step, in words.
std::string describe_traffic(const state::Layout& layout, const NodeRanks& ranks, const std::vector<Wave>& waves,
                             const SumOptions& options);

}  // namespace lockstep::parallel
