#pragma once

// What torch.distributed has besides, made of a group's few collectives. For all of them: every rank of the group calls
// the same in the same order; tensors are dense, of any strides and dtype (reductions: all_reduce's), of the CPU or of
// a device, as group.h says. Refusals that follow from what all ranks gave are a UsageError on all of them, after which
// the group can be used.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// A group of all ranks of `group`, for a user of its own: a thread, AsyncCollectives. Collective.
std::shared_ptr<Group> duplicate(Group& group);

/// all_gather of tensors whose first dimension may differ, 0 included; the tensors of all ranks, by rank. UsageError
/// unless they agree in dtype and the other dimensions, at most 7. Moves as much as if all were as long as the longest.
std::vector<at::Tensor> all_gather_uneven(Group& group, const at::Tensor& tensor);

/// What a rank has received.
struct Received {
  at::Tensor output;                 ///< the parts, by rank, one behind the other in the first dimension
  std::vector<std::int64_t> splits;  ///< rows that came from each rank
};
/// Sends the first splits[0] rows of `input` to rank 0, and so on; all_to_all_single with input_split_sizes. The splits
/// are one for each rank, none negative, and add up to the rows. Moves as much as if all splits were the largest.
Received all_to_all_uneven(Group& group, const at::Tensor& input, const std::vector<std::int64_t>& splits);

/// The tensors of all ranks, by rank, on `root`; nothing elsewhere. Equal numbers of elements. Costs an all_gather.
std::vector<at::Tensor> gather(Group& group, const at::Tensor& tensor, int root = 0);

/// Puts inputs[r] of `root` into `output` of rank r. The others' `inputs` are not looked at. Costs a broadcast of all.
void scatter(Group& group, const at::Tensor& output, const std::vector<at::Tensor>& inputs, int root = 0);

/// all_reduce whose result only `root` gets; the others' tensors stay as they are.
void reduce(Group& group, const at::Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::sum);

/// One collective for all tensors of a dtype instead of one for each. The bits are those of single calls. Here and
/// below, ranks whose lists have other sizes are told so only where the elements of a dtype are not as many in all: {2,
/// 3} beside {3, 2} is not noticed.
void all_reduce_coalesced(Group& group, const std::vector<at::Tensor>& tensors, ReduceOp op = ReduceOp::sum);
void broadcast_coalesced(Group& group, const std::vector<at::Tensor>& tensors, int root = 0);

/// The tensors of all ranks: result[rank][i] is tensors[i] of that rank. Equal dtypes and numbers of elements on all.
std::vector<std::vector<at::Tensor>> all_gather_coalesced(Group& group, const std::vector<at::Tensor>& tensors);
/// reduce_scatter of inputs[i] into outputs[i]; UsageError unless each pair fits and there are as many of both.
void reduce_scatter_coalesced(Group& group, const std::vector<at::Tensor>& outputs,
                              const std::vector<at::Tensor>& inputs, ReduceOp op = ReduceOp::sum);

/// An object in whatever bytes the caller writes it in. Only the root's `bytes` count.
std::string broadcast_bytes(Group& group, const std::string& bytes, int root = 0);
/// The bytes of all ranks, by rank; of any lengths.
std::vector<std::string> all_gather_bytes(Group& group, const std::string& bytes);
/// The same on `root`; nothing elsewhere. Costs an all_gather_bytes.
std::vector<std::string> gather_bytes(Group& group, const std::string& bytes, int root = 0);
/// objects[r] of `root`, on rank r. The others' are not looked at. Costs a broadcast of all.
std::string scatter_bytes(Group& group, const std::vector<std::string>& objects, int root = 0);

}  // namespace lockstep::comm
