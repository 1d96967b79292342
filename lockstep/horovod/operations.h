#pragma once

// Horovod's operations on tensors, under its names (horovod.torch, 0.28).
//
//   at::Tensor mean = hvd::allreduce(loss);
//   auto handle = hvd::allreduce_async_(gradient, {.op = hvd::Sum});
//   hvd::synchronize(handle);
//
// Tensors are dense and on the CPU, of any strides. Operations of a process set run one after another, in the order in
// which this rank called them, which is to be the same on all its ranks: there are no names, and nothing is negotiated.
// Ranks that call different ones get an Error that names both. They run in a thread of their own; what is not _async
// waits for it. Each wait has the deadline given to init(). Gradients do not flow through them.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/async.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/horovod/session.h"

namespace lockstep::horovod {

enum class Op { Average, Sum, Adasum, Min, Max, Product };
inline constexpr Op Average = Op::Average;
inline constexpr Op Sum = Op::Sum;
inline constexpr Op Adasum = Op::Adasum;
inline constexpr Op Min = Op::Min;
inline constexpr Op Max = Op::Max;
inline constexpr Op Product = Op::Product;

/// What floating tensors travel as. Rounded once before and once behind the sum, which is made in float32.
enum class Compression { none, fp16, bf16 };

struct AllreduceOptions {
  /// Integers have no average: UsageError. Adasum takes floating tensors, each by itself (adasum.h).
  Op op = Average;
  Compression compression = Compression::none;
  double prescale_factor = 1;   ///< by which the tensor is multiplied before it is compressed; floating tensors
  double postscale_factor = 1;  ///< and the result at the end
  ProcessSet process_set = {};
};

/// An operation under way, and what it will give. Its tensors are not to be touched until it has ended.
template <class Result>
struct Handle {
  comm::Work work;
  std::shared_ptr<Result> result;
};
using Tensors = std::vector<at::Tensor>;

/// Whether it has ended, well or not.
template <class Result>
bool poll(const Handle<Result>& handle) {
  return handle.work.is_completed();
}
/// Waits for it; its result, or what it threw. Any number of times.
template <class Result>
Result synchronize(const Handle<Result>& handle) {
  handle.work.wait();
  return *handle.result;
}

/// With a trailing underscore in place, else a new tensor. Of one shape and dtype on all ranks.
[[nodiscard]] Handle<at::Tensor> allreduce_async(const at::Tensor& tensor, const AllreduceOptions& options = {});
[[nodiscard]] Handle<at::Tensor> allreduce_async_(const at::Tensor& tensor, const AllreduceOptions& options = {});
[[nodiscard]] at::Tensor allreduce(const at::Tensor& tensor, const AllreduceOptions& options = {});
at::Tensor allreduce_(const at::Tensor& tensor, const AllreduceOptions& options = {});

/// Several as one operation for each dtype. The bits are those of single ones.
[[nodiscard]] Handle<Tensors> grouped_allreduce_async(const Tensors& tensors, const AllreduceOptions& options = {});
[[nodiscard]] Handle<Tensors> grouped_allreduce_async_(const Tensors& tensors, const AllreduceOptions& options = {});
[[nodiscard]] Tensors grouped_allreduce(const Tensors& tensors, const AllreduceOptions& options = {});
Tensors grouped_allreduce_(const Tensors& tensors, const AllreduceOptions& options = {});

/// The ranks' tensors one behind the other in the first dimension, in which alone they may differ.
[[nodiscard]] Handle<at::Tensor> allgather_async(const at::Tensor& tensor, const ProcessSet& set = {});
[[nodiscard]] at::Tensor allgather(const at::Tensor& tensor, const ProcessSet& set = {});
[[nodiscard]] Handle<Tensors> grouped_allgather_async(const Tensors& tensors, const ProcessSet& set = {});
[[nodiscard]] Tensors grouped_allgather(const Tensors& tensors, const ProcessSet& set = {});

/// The tensor of `root_rank`, a number of the job also in a process set.
[[nodiscard]] Handle<at::Tensor> broadcast_async(const at::Tensor& tensor, int root_rank, const ProcessSet& set = {});
[[nodiscard]] Handle<at::Tensor> broadcast_async_(const at::Tensor& tensor, int root_rank, const ProcessSet& set = {});
[[nodiscard]] at::Tensor broadcast(const at::Tensor& tensor, int root_rank, const ProcessSet& set = {});
at::Tensor broadcast_(const at::Tensor& tensor, int root_rank, const ProcessSet& set = {});

/// Sends splits[r] rows to rank r; without splits, equal parts. What came, and how many rows from whom.
[[nodiscard]] Handle<comm::Received> alltoall_async(const at::Tensor& tensor, std::vector<std::int64_t> splits = {},
                                                    const ProcessSet& set = {});
[[nodiscard]] comm::Received alltoall(const at::Tensor& tensor, std::vector<std::int64_t> splits = {},
                                      const ProcessSet& set = {});

/// Of the sum or average this rank's rows. Where rows do not divide, the lower ranks have one more.
[[nodiscard]] Handle<at::Tensor> reducescatter_async(const at::Tensor& tensor, const AllreduceOptions& options = {});
[[nodiscard]] at::Tensor reducescatter(const at::Tensor& tensor, const AllreduceOptions& options = {});
[[nodiscard]] Handle<Tensors> grouped_reducescatter_async(const Tensors& tensors, const AllreduceOptions& options = {});
[[nodiscard]] Tensors grouped_reducescatter(const Tensors& tensors, const AllreduceOptions& options = {});

void barrier(const ProcessSet& set = {});

/// Says that this rank has no more data. Until all ranks have said so it takes part with zeros in the others' allreduce
/// by Average (which divides by all ranks), Sum and Adasum; anything else is a UsageError on all. Returns the number of
/// the rank that joined last.
int join();

}  // namespace lockstep::horovod
