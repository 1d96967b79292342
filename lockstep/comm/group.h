#pragma once

// What ranks can do together.
//
// Collectives: every rank of the group calls the same ones in the same order, with the
// same dtype and number of elements; a mismatch is an Error on all ranks that names both
// sides. They block until done. A wait ends with GroupAborted when a rank has failed, died,
// left or is later than the group's timeout; the group is of no use afterwards.
//
// Tensors may be the CPU's or a device's, as torch.distributed's gloo takes them; those of one call are on one device.
// A device's are read behind all work that is queued on the current stream of their device at the call, and what is
// queued there behind the call sees the results. Ranks may have them on different devices, or some on the CPU, unless
// the group says otherwise. They go through the host's memory (host_memory.h), and the call returns when all is done.
//
// A Group belongs to one rank and is used by one thread at a time.

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/node.h"
#include "lockstep/comm/topology.h"

namespace lockstep::comm {

class CallLog;
class Messages;
class Wire;

/// As torch.distributed's SUM, AVG, MIN, MAX and PRODUCT.
enum class ReduceOp { sum, mean, min, max, product };

/// What ranks can do wherever they are: nothing here needs memory that they share.
class Collectives {
 public:
  virtual ~Collectives() = default;

  /// Replaces `tensor` (any strides; may be empty) by its sum, mean, minimum, maximum or product
  /// over the ranks. dtypes: float32, float64, bfloat16, float16, int8, uint8, int32, int64, bool.
  ///
  /// Combined along a fixed binary tree over the rank (base/tree.h), so the bits are the same on all
  /// ranks and in every run, for tensors in shared memory and elsewhere. bfloat16 and float16 are
  /// combined in float32 and rounded once. The mean is the sum times 1/ranks; integers and bool have
  /// none. Integers wrap. A NaN makes min and max NaN, as in torch::minimum. For bool, sum and max are
  /// "or", product and min are "and", as in torch::add and with NCCL.
  virtual void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) = 0;

  /// Cuts `input` into one equal part for each rank, reduces as all_reduce does, and puts the part of this
  /// rank into `output`; torch.distributed's reduce_scatter_tensor. `input` has as many times the elements
  /// of `output` as there are ranks, and its dtype, else UsageError. Any strides; elements count in the order
  /// of a contiguous tensor. The tensors may not overlap, except that `output` may be this rank's part of
  /// `input` where both are contiguous; UsageError, unless strides with gaps hide it.
  virtual void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::sum) = 0;

  /// Replaces `tensor` by that of rank `root`. Any dtype.
  virtual void broadcast(const at::Tensor& tensor, int root = 0) = 0;

  /// The tensors of all ranks, by rank; each is contiguous and new, on the device of `tensor`. Any dtype.
  virtual std::vector<at::Tensor> all_gather(const at::Tensor& tensor) = 0;

  /// Returns when all ranks have called it.
  virtual void barrier() = 0;
};

/// The collectives of all ranks of a job, and what a rank has of its node.
///
/// Derive from it to train over a transport of your own, and give it to init() or to DistributedDataParallel. The
/// collectives and the topology are enough for the classic path of training, with optimizers of torch::optim. Ours keep
/// the weights in memory that the ranks of a node share: they need a shared_node(), which a group that wraps one of
/// ours hands on.
class Group : public Collectives {
 public:
  const Topology& topology() const { return topology_; }
  /// The rank in the world, and the world's ranks.
  int rank() const { return topology_.rank; }
  int size() const { return topology_.world; }

  /// Cuts `input` into one equal part for each rank, sends the r-th to rank r, and puts the parts received into
  /// `output`, by rank; torch.distributed's all_to_all_single. Both have as many elements, a multiple of the ranks, and
  /// one dtype, else UsageError. Any dtype; any strides; elements count in the order of a contiguous tensor. The
  /// tensors may not overlap. Made of all_gather unless overridden. Uneven parts: comm/collectives.h.
  virtual void all_to_all(const at::Tensor& output, const at::Tensor& input);

  /// Puts the tensors of all ranks into `output`, by rank; torch.distributed's. `output` has as many times the elements
  /// of `input` as there are ranks, and its dtype, else UsageError. Any dtype; any strides; elements count in the order
  /// of a contiguous tensor. The tensors may not overlap, as with reduce_scatter, except that `input` may be this
  /// rank's part of `output`. Made of all_gather unless overridden.
  virtual void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input);

  /// Moves messages between this rank and others (messages.h), all at the same time, until none is under way and none
  /// has come; what programs call is in comm/point_to_point.h. No collective: only the two ranks of a message have to
  /// do with it, and other ranks may be in collectives meanwhile. Error on the receiver, and the end of the group, when
  /// a peer's message is another one than expected. GroupAborted as in collectives; the deadline is the group's timeout
  /// in which nothing moves. UsageError unless overridden.
  virtual void carry(Messages& messages);

  /// The group of these ranks, rising and without doubles, which are then called 0, 1, ... in it. A collective of all
  /// ranks of this group, with the same list; null for those that are not in it. It takes part in this group's fate: a
  /// failure in either ends the waits of both, and names ranks as this one does. It may outlive this one. The two may
  /// be used at the same time, each by one thread. UsageError unless overridden.
  [[nodiscard]] virtual std::shared_ptr<Group> new_group(const std::vector<int>& ranks);

  /// A group for each color, of the ranks that give it; MPI_Comm_split, ncclCommSplit. Ranks are numbered by rising
  /// key, of equal keys as in this group. A collective; null where there is no color or one below 0. Made of all_gather
  /// and new_group(), which this group needs: what is said there holds. A group in which the keys change the order of
  /// ranks has no node, so it trains with optimizers of torch::optim alone, and its reductions combine in the order of
  /// this group's ranks.
  [[nodiscard]] std::shared_ptr<Group> split(std::optional<int> color, int key = 0);

  /// A new tensor, contiguous, its values zero at first, whose memory all ranks of the node have
  /// mapped: what torch calls symmetric memory, and NCCL registered buffers. Collectives on it, or on
  /// contiguous parts of it, copy nothing, when all ranks give a part of what the same call made;
  /// otherwise they work as on any tensor. A collective: same sizes and dtype on all ranks.
  ///
  /// The tensor may be kept, viewed and destroyed like any other, by each rank on its own and after
  /// the group; the memory is freed with the last rank's. Each call takes a file descriptor for a
  /// moment and whole pages, 2 MiB at least: make one tensor and cut it, rather than many. Peers can write into
  /// it, and do so during collectives only. Too little memory is a UsageError on all ranks, after which the
  /// group can be used. Alone (size 1 without a launcher), and in a group that has no shared memory, it is an ordinary
  /// tensor, which is also what this function makes unless overridden.
  virtual at::Tensor shared_empty(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);

  /// The shared memory and the seat by which the ranks of this node meet. The data-parallel
  /// engine keeps its state there. Null: there is none, and only collectives. Always the same, on all ranks alike.
  virtual base::Node* shared_node() { return nullptr; }
  /// The same for those who cannot do without: UsageError when there is none.
  base::Node& node();

  /// What carries bytes between the nodes (network/wire.h); null where all ranks are on one.
  virtual Wire* wire() { return nullptr; }

  /// Where this rank's calls are kept (call_log.h); null: nowhere.
  virtual CallLog* call_log() { return nullptr; }

  /// Tells the group that this rank cannot go on; everybody's waits throw GroupAborted with
  /// this cause, unless another failure was first. Returns whether it was the first, as far as this rank knows. A
  /// group without a node overrides it where its transport can tell the peers; else it does nothing there. Any thread
  /// may call it.
  virtual bool abort(const std::string& cause, int exit_code = kExitFailure);

 protected:
  explicit Group(const Topology& topology) : topology_(topology) {}

 private:
  Topology topology_;
};

}  // namespace lockstep::comm
