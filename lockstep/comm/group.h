#pragma once

// What ranks can do together.
//
// Collectives: every rank of the group calls the same ones in the same order, with the
// same dtype and number of elements; a mismatch is an Error on all ranks that names both
// sides. They block until done. A wait ends with GroupAborted when a rank has failed, died,
// left or is later than the group's timeout; the group is of no use afterwards.
//
// A Group belongs to one rank and is used by one thread at a time.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lockstep/base/node.h"

namespace lockstep::comm {

enum class ReduceOp { sum, mean };

class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Replaces `tensor` (CPU; float32, float64, bfloat16 or int64; any strides; may be empty)
  /// by its sum or mean over the ranks. Summed along a fixed binary tree over the rank
  /// (base/tree.h), so the bits are the same on all ranks and in every run; bfloat16 is summed
  /// in float32 and rounded once. The mean is the sum times 1/size; int64 has no mean.
  virtual void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) = 0;

  /// Replaces `tensor` by that of rank `root`. Any dtype.
  virtual void broadcast(const at::Tensor& tensor, int root = 0) = 0;

  /// The tensors of all ranks, by rank; each is contiguous and new. Any dtype.
  virtual std::vector<at::Tensor> all_gather(const at::Tensor& tensor) = 0;

  /// Returns when all ranks have called it.
  virtual void barrier() = 0;

  /// The shared memory and the seat by which the ranks of this node meet. The data-parallel
  /// engine keeps its state there.
  virtual base::Node& node() = 0;

  /// Tells the group that this rank cannot go on; everybody's waits throw GroupAborted with
  /// this cause, unless another failure was first. Returns whether it was the first.
  bool abort(const std::string& cause, int exit_code = kExitFailure) { return node().member.fail(cause, exit_code); }
};

}  // namespace lockstep::comm
