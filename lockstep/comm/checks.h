#pragma once

// What every Group refuses, in the same words.

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// UsageError unless the tensor is defined, dense, and on the CPU or a device that computes, and its memory holds its
/// values: no view that conjugates or negates them when they are read.
void check_dense(const at::Tensor& tensor, const char* collective);

/// check_dense, and UsageError unless it is on the CPU.
void check_cpu(const at::Tensor& tensor, const char* collective);

/// UsageError unless both are on one device.
void check_one_device(const at::Tensor& output, const at::Tensor& input, const char* collective);

/// UsageError when several elements of the tensor are one in memory.
void check_writable(const at::Tensor& tensor, const char* collective);

/// check_dense, and UsageError unless `op` exists for the dtype.
void check_reducible(const at::Tensor& tensor, ReduceOp op, const char* collective);

/// check_reducible, and UsageError unless `input` is `size` times `output`, on one device. They may not overlap, as far
/// as strides tell that cheaply, unless both are contiguous and `output` is the part of `input` of `rank`, this one.
void check_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op, int rank, int size);

/// UsageError unless both are dense, on one device, of one dtype and of as many elements, a multiple of `size`. Where
/// there are several ranks they may not overlap, likewise.
void check_all_to_all(const at::Tensor& output, const at::Tensor& input, int size);

/// UsageError unless both are dense, on one device, of one dtype, and `output` has `size` times the elements of
/// `input`. They may not overlap, likewise, unless both are contiguous and `input` is the part of `output` of `rank`.
void check_all_gather_into(const at::Tensor& output, const at::Tensor& input, int rank, int size);

/// UsageError unless a message of the tensor can go to the peer, or come from it; `rank` is this one.
void check_message(const at::Tensor& tensor, int peer, int tag, int rank, int size, const char* way);

/// UsageError unless `ranks` are some of those below `size`, rising.
void check_ranks(const std::vector<int>& ranks, int size);

/// check_ranks, and UsageError on all ranks of the group unless all ask for the same ones. A collective.
void agree_on_ranks(Group& group, const std::vector<int>& ranks);

/// UsageError unless a tensor can have these sizes.
/// What failures call a rank of this group: its number in the world where that is known.
int name_in_world(Group& group, int rank);

void check_sizes(at::IntArrayRef sizes);

/// The equal parts of a contiguous tensor, one for each of `size` ranks; views of it.
std::vector<at::Tensor> parts_of(const at::Tensor& dense, int size);

/// UsageError unless 0 <= root < size.
void check_root(int root, int size, const char* collective = "broadcast");

}  // namespace lockstep::comm
