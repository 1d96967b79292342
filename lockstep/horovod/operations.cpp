#include "lockstep/horovod/operations.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "lockstep/comm/checks.h"
#include "lockstep/horovod/adasum.h"
#include "lockstep/horovod/agreement.h"

namespace lockstep::horovod {
namespace {

using comm::ReduceOp;
using Members = ProcessSet::Members;

ReduceOp reduce_op(Op op) {
  switch (op) {
    case Op::Average:
      return ReduceOp::mean;
    case Op::Min:
      return ReduceOp::min;
    case Op::Max:
      return ReduceOp::max;
    case Op::Product:
      return ReduceOp::product;
    default:
      return ReduceOp::sum;
  }
}

// What can be said before the others are asked.
// For the queue: one that held the set it belongs to would end it in its own thread.
AllreduceOptions without_set(AllreduceOptions options) {
  options.process_set = {};
  return options;
}

void check_allreduce(const at::Tensor& tensor, const AllreduceOptions& options, const char* name) {
  comm::check_reducible(tensor, reduce_op(options.op), name);
  const bool scaled = options.prescale_factor != 1 || options.postscale_factor != 1;
  if ((options.op == Op::Adasum || scaled) && !tensor.is_floating_point())
    throw UsageError(std::string(name) + ": " + c10::toString(tensor.scalar_type()) + " takes no " +
                     (scaled ? "scale factor" : "Adasum"));
}

at::ScalarType wire_dtype(at::ScalarType dtype, Compression compression) {
  if (compression == Compression::none || !at::isFloatingType(dtype)) return dtype;
  return compression == Compression::fp16 ? at::kHalf : at::kBFloat16;
}

Call call_of(Kind kind, std::int64_t detail, const at::Tensor& tensor) {
  return {.kind = kind, .detail = detail, .dtype = std::int64_t(tensor.scalar_type()), .elements = tensor.numel()};
}

// One collective for tensors of a dtype, that of `flat`, which they lie in one behind the other.
void reduce_flat(comm::Group& group, const Members& members, const at::Tensor& flat, const Tensors& parts,
                 const AllreduceOptions& options) {
  at::Tensor wire = options.prescale_factor == 1 ? flat : flat * options.prescale_factor;
  wire = wire.to(wire_dtype(flat.scalar_type(), options.compression));
  if (options.op == Op::Adasum) {
    agree(group, members.ranks, call_of(Kind::adasum, 0, wire));
    const std::vector<at::Tensor> all = group.all_gather(wire);
    std::int64_t offset = 0;
    for (const at::Tensor& part : parts) {
      std::vector<at::Tensor> by_rank;
      for (const at::Tensor& theirs : all) by_rank.push_back(theirs.narrow(0, offset, part.numel()));
      wire.narrow(0, offset, part.numel()).copy_(adasum(by_rank));
      offset += part.numel();
    }
  } else {
    const ReduceOp op = reduce_op(options.op);
    agree(group, members.ranks, call_of(Kind::allreduce, std::int64_t(op), wire));
    group.all_reduce(wire, op);
  }
  if (!wire.is_same(flat)) flat.copy_(wire);
  if (options.postscale_factor != 1) flat.mul_(options.postscale_factor);
}

void reduce_in_place(comm::Group& group, const Members& members, const Tensors& tensors,
                     const AllreduceOptions& options) {
  std::vector<at::ScalarType> done;
  for (const at::Tensor& first : tensors) {
    const at::ScalarType dtype = first.scalar_type();
    if (std::find(done.begin(), done.end(), dtype) != done.end()) continue;
    done.push_back(dtype);
    Tensors parts, flats;
    for (const at::Tensor& tensor : tensors) {
      if (tensor.scalar_type() != dtype) continue;
      parts.push_back(tensor.detach());
      flats.push_back(parts.back().reshape({-1}));
    }
    const bool in_place = parts.size() == 1 && parts[0].is_contiguous();
    const at::Tensor flat = in_place ? flats[0] : at::cat(flats);
    reduce_flat(group, members, flat, parts, options);
    if (in_place) continue;
    std::int64_t offset = 0;
    for (const at::Tensor& part : parts) {
      part.copy_(flat.narrow(0, offset, part.numel()).view(part.sizes()));
      offset += part.numel();
    }
  }
}

// Puts an operation into the set's queue. body(group, members) gives the result.
template <class Result, class Body>
Handle<Result> enqueue(const ProcessSet& set, Body body) {
  Members& members = set.members();
  auto result = std::make_shared<Result>();
  // The queue ends with its members: a plain reference will do.
  comm::Work work = members.queue->run(
      [result, &members, body = std::move(body)](comm::Group& group) { *result = body(group, members); });
  return {std::move(work), std::move(result)};
}

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors)
    copies.push_back(tensor.defined() ? tensor.detach().clone(at::MemoryFormat::Contiguous) : tensor);
  return copies;
}

// A handle for one tensor of an operation on many.
Handle<at::Tensor> single(const at::Tensor& tensor, const Handle<Tensors>& handle) {
  return {handle.work, std::make_shared<at::Tensor>(tensor)};
}

int root_in(const ProcessSet& set, int root_rank) {
  const std::vector<int> ranks = set.ranks();
  const auto root = std::find(ranks.begin(), ranks.end(), root_rank);
  if (root == ranks.end())
    throw UsageError("horovod: root_rank " + std::to_string(root_rank) + " is not in the process set");
  return int(root - ranks.begin());
}

// The rows of rank `rank`, as Horovod deals them out.
at::Tensor rows_for(const at::Tensor& tensor, int rank, int size) {
  const std::int64_t rows = tensor.size(0), each = rows / size, more = rows % size;
  return tensor.narrow(0, rank * each + std::min<std::int64_t>(rank, more), each + (rank < more ? 1 : 0));
}

void check_rows(const at::Tensor& tensor, const char* name) {
  comm::check_cpu(tensor, name);
  if (tensor.dim() == 0) throw UsageError(std::string(name) + ": needs a tensor with rows, this one is a scalar");
}

at::Tensor gather_rows(comm::Group& group, const Members& members, const at::Tensor& tensor) {
  Call call{.kind = Kind::allgather, .dtype = std::int64_t(tensor.scalar_type())};  // numbers of rows may differ
  agree(group, members.ranks, call);
  return at::cat(comm::all_gather_uneven(group, tensor));
}

}  // namespace

Handle<Tensors> grouped_allreduce_async_(const Tensors& tensors, const AllreduceOptions& options) {
  for (const at::Tensor& tensor : tensors) check_allreduce(tensor, options, "allreduce");
  return enqueue<Tensors>(options.process_set,
                          [tensors, own = without_set(options)](comm::Group& group, const Members& members) {
                            reduce_in_place(group, members, tensors, own);
                            return tensors;
                          });
}
Handle<Tensors> grouped_allreduce_async(const Tensors& tensors, const AllreduceOptions& options) {
  return grouped_allreduce_async_(copies_of(tensors), options);
}
Tensors grouped_allreduce(const Tensors& tensors, const AllreduceOptions& options) {
  return synchronize(grouped_allreduce_async(tensors, options));
}
Tensors grouped_allreduce_(const Tensors& tensors, const AllreduceOptions& options) {
  return synchronize(grouped_allreduce_async_(tensors, options));
}

Handle<at::Tensor> allreduce_async_(const at::Tensor& tensor, const AllreduceOptions& options) {
  return single(tensor, grouped_allreduce_async_({tensor}, options));
}
Handle<at::Tensor> allreduce_async(const at::Tensor& tensor, const AllreduceOptions& options) {
  return allreduce_async_(copies_of({tensor})[0], options);
}
at::Tensor allreduce(const at::Tensor& tensor, const AllreduceOptions& options) {
  return synchronize(allreduce_async(tensor, options));
}
at::Tensor allreduce_(const at::Tensor& tensor, const AllreduceOptions& options) {
  return synchronize(allreduce_async_(tensor, options));
}

Handle<Tensors> grouped_allgather_async(const Tensors& tensors, const ProcessSet& set) {
  for (const at::Tensor& tensor : tensors) check_rows(tensor, "allgather");
  return enqueue<Tensors>(set, [tensors](comm::Group& group, const Members& members) {
    Tensors gathered;
    for (const at::Tensor& tensor : tensors) gathered.push_back(gather_rows(group, members, tensor));
    return gathered;
  });
}
Handle<at::Tensor> allgather_async(const at::Tensor& tensor, const ProcessSet& set) {
  check_rows(tensor, "allgather");
  return enqueue<at::Tensor>(
      set, [tensor](comm::Group& group, const Members& members) { return gather_rows(group, members, tensor); });
}
Tensors grouped_allgather(const Tensors& tensors, const ProcessSet& set) {
  return synchronize(grouped_allgather_async(tensors, set));
}
at::Tensor allgather(const at::Tensor& tensor, const ProcessSet& set) {
  return synchronize(allgather_async(tensor, set));
}

Handle<at::Tensor> broadcast_async_(const at::Tensor& tensor, int root_rank, const ProcessSet& set) {
  comm::check_cpu(tensor, "broadcast");
  const int root = root_in(set, root_rank);
  return enqueue<at::Tensor>(set, [tensor, root](comm::Group& group, const Members& members) {
    agree(group, members.ranks, call_of(Kind::broadcast, root, tensor));
    group.broadcast(tensor, root);
    return tensor;
  });
}
Handle<at::Tensor> broadcast_async(const at::Tensor& tensor, int root_rank, const ProcessSet& set) {
  return broadcast_async_(copies_of({tensor})[0], root_rank, set);
}
at::Tensor broadcast(const at::Tensor& tensor, int root_rank, const ProcessSet& set) {
  return synchronize(broadcast_async(tensor, root_rank, set));
}
at::Tensor broadcast_(const at::Tensor& tensor, int root_rank, const ProcessSet& set) {
  return synchronize(broadcast_async_(tensor, root_rank, set));
}

Handle<comm::Received> alltoall_async(const at::Tensor& tensor, std::vector<std::int64_t> splits,
                                      const ProcessSet& set) {
  check_rows(tensor, "alltoall");
  if (splits.empty()) {
    const std::int64_t ranks = set.size();
    if (tensor.size(0) % ranks != 0)
      throw UsageError("alltoall: " + std::to_string(tensor.size(0)) + " rows are no equal parts for " +
                       std::to_string(ranks) + " ranks; say splits");
    splits.assign(std::size_t(ranks), tensor.size(0) / ranks);
  }
  return enqueue<comm::Received>(set, [tensor, splits = std::move(splits)](comm::Group& group, const Members& members) {
    agree(group, members.ranks, {.kind = Kind::alltoall, .dtype = std::int64_t(tensor.scalar_type())});
    return comm::all_to_all_uneven(group, tensor, splits);
  });
}
comm::Received alltoall(const at::Tensor& tensor, std::vector<std::int64_t> splits, const ProcessSet& set) {
  return synchronize(alltoall_async(tensor, std::move(splits), set));
}

Handle<Tensors> grouped_reducescatter_async(const Tensors& tensors, const AllreduceOptions& options) {
  if (options.op != Op::Average && options.op != Op::Sum)
    throw UsageError("reducescatter: op is Average or Sum, as in Horovod");
  for (const at::Tensor& tensor : tensors) {
    check_rows(tensor, "reducescatter");
    check_allreduce(tensor, options, "reducescatter");
  }
  return enqueue<Tensors>(options.process_set,
                          [tensors, options = without_set(options)](comm::Group& group, const Members& members) {
                            Tensors results;
                            for (const at::Tensor& tensor : tensors) {
                              const ReduceOp op = reduce_op(options.op);
                              at::Tensor wire = tensor.detach().clone(at::MemoryFormat::Contiguous);
                              if (options.prescale_factor != 1) wire.mul_(options.prescale_factor);
                              wire = wire.to(wire_dtype(tensor.scalar_type(), options.compression));
                              agree(group, members.ranks, call_of(Kind::reducescatter, std::int64_t(op), wire));
                              at::Tensor rows = rows_for(wire, group.rank(), group.size());
                              if (tensor.size(0) % group.size() == 0)
                                group.reduce_scatter(rows, wire, op);
                              else
                                group.all_reduce(wire, op);
                              rows = rows.to(tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
                              if (options.postscale_factor != 1) rows.mul_(options.postscale_factor);
                              results.push_back(rows);
                            }
                            return results;
                          });
}
Tensors grouped_reducescatter(const Tensors& tensors, const AllreduceOptions& options) {
  return synchronize(grouped_reducescatter_async(tensors, options));
}
Handle<at::Tensor> reducescatter_async(const at::Tensor& tensor, const AllreduceOptions& options) {
  const Handle<Tensors> all = grouped_reducescatter_async({tensor}, options);
  auto result = std::make_shared<at::Tensor>();
  comm::Work work =
      options.process_set.members().queue->run([all, result](comm::Group&) { *result = synchronize(all)[0]; });
  return {std::move(work), std::move(result)};
}
at::Tensor reducescatter(const at::Tensor& tensor, const AllreduceOptions& options) {
  return synchronize(grouped_reducescatter_async({tensor}, options))[0];
}

void barrier(const ProcessSet& set) {
  (void)synchronize(enqueue<bool>(set, [](comm::Group& group, const Members& members) {
    agree(group, members.ranks, {.kind = Kind::barrier});
    return true;
  }));
}

int join() {
  return synchronize(enqueue<int>(
      ProcessSet(), [](comm::Group& group, const Members& members) { return join_others(group, members.ranks); }));
}

}  // namespace lockstep::horovod
