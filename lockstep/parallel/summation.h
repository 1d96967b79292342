#pragma once

// How the gradients of shards are added up where several nodes have them: along the fixed tree (base/tree.h), and with
// DataParallelOptions::compression in numbers of 16 bits. Then every sum of the tree is rounded before it is added to
// another, the gradient of one shard and the sum of all of them, too, wherever it is made. So what travels has lost
// nothing on its way, and no bit depends on what travels: neither on who adds up what, nor on which node has which
// shards. float16 ends at 65504: in it gradients are divided by the power of two that is as many as the shards, or the
// next one above, as PyTorch's hook divides by the number of ranks. Nothing is kept of what rounding takes away, so a
// restart finds the same bits.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <vector>

#include "lockstep/parallel/options.h"
#include "lockstep/parallel/shards.h"

namespace lockstep::parallel {

/// What a run of shards adds up to over a piece of the flat range.
struct Operand {
  ShardSpan shards;  ///< or, where the sums of nodes are added up, nodes
  const void* data = nullptr;
  c10::ScalarType type = c10::ScalarType::Float;
};

/// In what the sum of so many shards travels, whose gradients are kept as `slots`.
c10::ScalarType sum_type(c10::ScalarType slots, int count, Compression compression);

class Summation {
 public:
  Summation(Compression compression, int shards);

  /// Whether sums are rounded to 16 bits.
  bool rounds() const { return compression_ != Compression::none; }

  /// Adds up the leaves of a tree over `leaves`, of which `operands` are the sums of subtrees that cover it: gradients
  /// of one shard as they are kept, or what add() has made. Room for as many elements of sum_type() of several shards.
  void add(ShardSpan leaves, const std::vector<Operand>& operands, std::size_t elements, void* to) const;

  /// What add() has rounded, as float32.
  void widen(const void* from, std::size_t elements, float* to) const;

 private:
  void load(const Operand& operand, std::size_t first, std::size_t n, float* to) const;
  void round(float* sums, std::size_t n) const;
  void add_tree(ShardSpan leaves, const std::vector<Operand>& operands, std::size_t first, std::size_t n,
                float* to) const;

  const Compression compression_;
  const c10::ScalarType type_;  ///< of sums
  const float scale_;           ///< of sums, a power of two
};

}  // namespace lockstep::parallel
