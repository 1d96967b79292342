#pragma once

// A reduction in two goes with the bits of one: first what the ranks of whole subtrees of the tree add up to, on their
// node; then all of it, where these values meet. Apart from all waiting.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <span>

#include "lockstep/comm/group.h"
#include "lockstep/comm/network/level_plan.h"
#include "lockstep/comm/reduce/reduce.h"

namespace lockstep::comm {

/// What the ranks of a whole subtree add up to, as it travels.
struct SubtreeValue {
  RankSpan ranks;
  const std::byte* data = nullptr;
};

class SubtreeSums {
 public:
  /// dtype and op as check_reducible() has let through, of so many ranks.
  SubtreeSums(at::ScalarType dtype, ReduceOp op, int world);

  /// Bytes of an element of the tensor.
  std::size_t width() const { return width_; }
  /// Of one of what these ranks add up to. One rank's is as in its tensor; bfloat16 and float16 of several are
  /// float32, which is rounded by finish() alone.
  std::size_t width_of(RankSpan ranks) const { return is_wide_ && ranks.count() > 1 ? sizeof(float) : width_; }

  /// Puts the value of these ranks into `to`; `inputs`: their tensors' elements, by rank.
  void add_up(RankSpan ranks, const std::byte* const* inputs, std::size_t elements, std::byte* to) const;

  /// Puts the result into `to`, of two or more values that cover all ranks, in order; none of them lies there.
  void finish(std::span<const SubtreeValue> values, std::size_t elements, std::byte* to) const;

 private:
  static constexpr std::size_t kChunk = 1024;  ///< elements, combined while they are near
  static constexpr std::size_t kMostWidth = 8;

  const std::byte* value_of(std::span<const SubtreeValue> values, const Reduction& reduction, std::size_t first,
                            std::size_t n, std::byte* room) const;

  Element element_{};   ///< of the tensor
  std::size_t width_;   ///< likewise
  bool is_wide_;        ///< it is combined in float32
  Reduction partial_;   ///< of some ranks
  Reduction complete_;  ///< of all
};

}  // namespace lockstep::comm
