#include "python/backend.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/checks.h"
#include "lockstep/comm/collectives.h"

namespace lockstep::python {
namespace {

using Tensors = Backend::Tensors;
using c10d::OpType;
using comm::Group;

// The longest name of an operation comes first in none of them: c10d numbers them.
constexpr const char* kReduceOps[] = {"SUM",  "AVG", "PRODUCT", "MIN",        "MAX",
                                      "BAND", "BOR", "BXOR",    "PREMUL_SUM", "UNUSED"};

comm::ReduceOp op_of(const c10d::ReduceOp& op, const char* collective) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return comm::ReduceOp::sum;
    case c10d::ReduceOp::AVG:
      return comm::ReduceOp::mean;
    case c10d::ReduceOp::PRODUCT:
      return comm::ReduceOp::product;
    case c10d::ReduceOp::MIN:
      return comm::ReduceOp::min;
    case c10d::ReduceOp::MAX:
      return comm::ReduceOp::max;
    default:
      break;
  }
  TORCH_CHECK_VALUE(false, collective, ": ReduceOp.", kReduceOps[op.op_],
                    " is none of the lockstep backend's, which are SUM, AVG, MIN, MAX and PRODUCT");
}

template <class T>
const T& only(const std::vector<T>& list, const char* collective) {
  TORCH_CHECK_VALUE(list.size() == 1, collective, ": takes one tensor of each rank, not ", list.size());
  return list[0];
}

void check_count(const Tensors& tensors, int size, const char* collective) {
  TORCH_CHECK_VALUE(tensors.size() == std::size_t(size), collective, ": ", tensors.size(), " tensors for ", size,
                    " ranks");
}

void check_on_cpu(const Tensors& tensors, const char* collective) {
  for (const at::Tensor& tensor : tensors)
    TORCH_CHECK_VALUE(tensor.defined() && tensor.device().is_cpu() && tensor.layout() == at::kStrided, collective,
                      ": takes dense tensors on the CPU, this one is ", tensor.defined() ? tensor.toString() : "none");
}

void check_same(const Tensors& tensors, const at::Tensor& like, const char* collective) {
  for (const at::Tensor& tensor : tensors)
    TORCH_CHECK_VALUE(tensor.scalar_type() == like.scalar_type() && tensor.numel() == like.numel(), collective,
                      ": its tensors are ", like.numel(), " x ", like.dtype(), " and ", tensor.numel(), " x ",
                      tensor.dtype(), "; they need to be alike");
}

// As c10d has them for a collective of one tensor and a list: dense, alike, one for each rank.
void check_list(const Tensors& list, const at::Tensor& one, int size, const char* collective) {
  check_count(list, size, collective);
  check_on_cpu(list, collective);
  check_on_cpu({one}, collective);
  check_same(list, one, collective);
}

bool is_even(const Tensors& list) {
  return std::all_of(list.begin(), list.end(),
                     [&](const at::Tensor& tensor) { return tensor.numel() == list[0].numel(); });
}

// Where the list's tensors have several lengths: that of this rank is like the one.
void check_uneven(const Tensors& list, const at::Tensor& one, int rank, int size, const char* collective) {
  check_count(list, size, collective);
  check_on_cpu(list, collective);
  check_on_cpu({one}, collective);
  check_same({list[std::size_t(rank)]}, one, collective);
  for (const at::Tensor& tensor : list)
    TORCH_CHECK_VALUE(tensor.scalar_type() == one.scalar_type(), collective, ": its tensors are ", one.dtype(), " and ",
                      tensor.dtype(), "; they need to be alike");
}

// Of a collective of several tensors: a list of as many for each rank, each like the one that is sent.
void check_lists(const Backend::Lists& lists, const Tensors& sent, int size, const char* collective) {
  check_on_cpu(sent, collective);
  TORCH_CHECK_VALUE(lists.size() == std::size_t(size), collective, ": ", lists.size(), " lists for ", size, " ranks");
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    TORCH_CHECK_VALUE(lists[rank].size() == sent.size(), collective, ": ", lists[rank].size(), " tensors of rank ",
                      rank, " for ", sent.size());
    check_on_cpu(lists[rank], collective);
    for (std::size_t i = 0; i < sent.size(); ++i) check_same({lists[rank][i]}, sent[i], collective);
  }
}

void put(const at::Tensor& to, const at::Tensor& from) { to.detach().copy_(from.view(to.sizes())); }

void put_all(const Tensors& to, const Tensors& from) {
  for (std::size_t rank = 0; rank < to.size(); ++rank) put(to[rank], from[rank]);
}

void put_uneven(const Tensors& to, const Tensors& from) {
  for (std::size_t rank = 0; rank < to.size(); ++rank)
    TORCH_CHECK_VALUE(to[rank].numel() == from[rank].numel(), "all_gather: this rank expects ", to[rank].numel(),
                      " elements from rank ", rank, " and was sent ", from[rank].numel());
  put_all(to, from);
}

// One below the other, as wide as the longest.
at::Tensor padded_rows(const Tensors& tensors) {
  std::int64_t longest = 0;
  for (const at::Tensor& tensor : tensors) longest = std::max(longest, tensor.numel());
  const at::Tensor rows = at::zeros({std::int64_t(tensors.size()), longest}, tensors[0].options().requires_grad(false));
  for (std::size_t row = 0; row < tensors.size(); ++row)
    rows.select(0, std::int64_t(row)).narrow(0, 0, tensors[row].numel()).copy_(tensors[row].detach().reshape({-1}));
  return rows;
}

// Rows would fit each other whatever they hold: the ranks' lists must be of the same lengths.
void check_lengths(Group& group, const Tensors& list, const char* collective) {
  std::vector<std::int64_t> lengths;
  for (const at::Tensor& tensor : list) lengths.push_back(tensor.numel());
  const at::Tensor ours = at::tensor(at::IntArrayRef(lengths), at::kLong);
  const Tensors all = group.all_gather(ours);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    TORCH_CHECK_VALUE(at::equal(all[rank], ours), collective, ": this rank's tensors have ", at::IntArrayRef(lengths),
                      " elements, those of rank ", rank, " other numbers");
}

void check_into(const at::Tensor& output, const at::Tensor& input, int size, const char* collective) {
  check_on_cpu({output, input}, collective);
  TORCH_CHECK_VALUE(
      output.scalar_type() == input.scalar_type() && output.numel() == input.numel() * size && output.is_contiguous(),
      collective, ": the output needs to be contiguous, ", size, " times ", input.numel(), " x ", input.dtype(),
      "; it is ", output.numel(), " x ", output.dtype());
}

at::Tensor flat(const Tensors& tensors) {
  Tensors parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(tensor.detach().reshape({-1}));
  return at::cat(parts);
}

void put_rows(const at::Tensor& output, const comm::Received& received, const std::vector<std::int64_t>& splits) {
  TORCH_CHECK_VALUE(received.splits == splits, "all_to_all: this rank expects ", splits,
                    " from the ranks and was sent ", received.splits);
  put(output, received.output);
}

}  // namespace

Backend::Backend(std::shared_ptr<Group> group, std::string suffix)
    : c10d::Backend(group->rank(), group->size()),
      turns_(std::make_unique<Turns>(std::move(group), std::move(suffix))) {}

// A child's copy of the condition waits for a thread that is the parent's.
Backend::~Backend() {
  if (turns_->is_this_process()) return;
  [[maybe_unused]] const auto* lost = turns_.release();
}

Backend::Result Backend::add(OpType type, const char* name, const Tensors& inputs, Tensors outputs, bool is_async,
                             Work::Collective collective) {
  ++called_;
  auto work = c10::make_intrusive<Work>(rank_, type, name, inputs, std::move(outputs), std::move(collective));
  turns_->add(work, /*caller_waits=*/!is_async);
  return work;
}

Backend::Result Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const comm::ReduceOp op = op_of(options.reduceOp, "all_reduce");
  return add(OpType::ALLREDUCE, "lockstep:all_reduce", tensors, tensors, options.asyncOp,
             [tensor = only(tensors, "all_reduce"), op](Group& group) { group.all_reduce(tensor, op); });
}

Backend::Result Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  const comm::ReduceOp op = op_of(options.reduceOp, "all_reduce_coalesced");
  return add(OpType::ALLREDUCE_COALESCED, "lockstep:all_reduce_coalesced", tensors, tensors, options.asyncOp,
             [tensors, op](Group& group) { comm::all_reduce_coalesced(group, tensors, op); });
}

Backend::Result Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return add(OpType::BROADCAST, "lockstep:broadcast", tensors, tensors, options.asyncOp,
             [tensor = only(tensors, "broadcast"), root = int(options.rootRank)](Group& group) {
               group.broadcast(tensor, root);
             });
}

Backend::Result Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const comm::ReduceOp op = op_of(options.reduceOp, "reduce");
  return add(OpType::REDUCE, "lockstep:reduce", tensors, tensors, options.asyncOp,
             [tensor = only(tensors, "reduce"), op, root = int(options.rootRank)](Group& group) {
               comm::reduce(group, tensor, root, op);
             });
}

Backend::Result Backend::allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const Tensors& list = only(outputs, "all_gather");
  const at::Tensor& input = only(inputs, "all_gather");
  if (!is_even(list)) {
    check_uneven(list, input, rank_, size_, "all_gather");
    return add(OpType::ALLGATHER, "lockstep:all_gather", inputs, list, options.asyncOp, [list, input](Group& group) {
      put_uneven(list, comm::all_gather_uneven(group, input.detach().reshape({-1})));
    });
  }
  check_list(list, input, size_, "all_gather");
  return add(OpType::ALLGATHER, "lockstep:all_gather", inputs, list, options.asyncOp,
             [list, input](Group& group) { put_all(list, group.all_gather(input)); });
}

Backend::Result Backend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  check_into(output, input, size_, "all_gather_into_tensor");
  return add(OpType::_ALLGATHER_BASE, "lockstep:all_gather_into_tensor", {input}, {output}, options.asyncOp,
             [output, input](Group& group) { group.all_gather_into_tensor(output, input); });
}

Backend::Result Backend::allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  check_lists(outputs, inputs, size_, "all_gather_coalesced");
  return add(OpType::ALLGATHER_COALESCED, "lockstep:all_gather_coalesced", inputs, {}, options.asyncOp,
             [outputs, inputs](Group& group) {
               for (std::size_t i = 0; i < inputs.size(); ++i) {
                 const Tensors gathered = group.all_gather(inputs[i]);
                 for (std::size_t rank = 0; rank < gathered.size(); ++rank) put(outputs[rank][i], gathered[rank]);
               }
             });
}

Backend::Result Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                         const c10d::AllgatherOptions& options) {
  check_count(outputs, int(inputs.size()), "all_gather_into_tensor");
  for (std::size_t i = 0; i < inputs.size(); ++i) check_into(outputs[i], inputs[i], size_, "all_gather_into_tensor");
  return add(OpType::ALLGATHER_COALESCED, "lockstep:all_gather_into_tensor", inputs, outputs, options.asyncOp,
             [outputs, inputs](Group& group) {
               for (std::size_t i = 0; i < inputs.size(); ++i) group.all_gather_into_tensor(outputs[i], inputs[i]);
             });
}

Backend::Result Backend::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor& input = only(inputs, "gather");
  const int root = int(options.rootRank);
  comm::check_root(root, size_, "gather");
  const Tensors list = rank_ == root ? only(outputs, "gather") : Tensors{};
  if (rank_ == root) check_list(list, input, size_, "gather");
  return add(OpType::GATHER, "lockstep:gather", inputs, list, options.asyncOp,
             [list, input, root](Group& group) { put_all(list, comm::gather(group, input, root)); });
}

Backend::Result Backend::scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) {
  const at::Tensor& output = only(outputs, "scatter");
  const int root = int(options.rootRank);
  comm::check_root(root, size_, "scatter");
  const Tensors list = rank_ == root ? only(inputs, "scatter") : Tensors{};
  if (rank_ == root) check_list(list, output, size_, "scatter");
  return add(OpType::SCATTER, "lockstep:scatter", list, outputs, options.asyncOp,
             [list, output, root](Group& group) { comm::scatter(group, output, list, root); });
}

Backend::Result Backend::reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) {
  const comm::ReduceOp op = op_of(options.reduceOp, "reduce_scatter");
  const Tensors& list = only(inputs, "reduce_scatter");
  const at::Tensor& output = only(outputs, "reduce_scatter");
  if (!is_even(list)) {
    check_uneven(list, output, rank_, size_, "reduce_scatter");
    return add(OpType::REDUCE_SCATTER, "lockstep:reduce_scatter", list, outputs, options.asyncOp,
               [list, output, op](Group& group) {
                 check_lengths(group, list, "reduce_scatter");
                 const at::Tensor rows = padded_rows(list);
                 const at::Tensor mine = at::empty({rows.size(1)}, rows.options());
                 group.reduce_scatter(mine, rows, op);
                 put(output, mine.narrow(0, 0, output.numel()));
               });
  }
  check_list(list, output, size_, "reduce_scatter");
  return add(OpType::REDUCE_SCATTER, "lockstep:reduce_scatter", list, outputs, options.asyncOp,
             [list, output, op](Group& group) { group.reduce_scatter(output, flat(list), op); });
}

Backend::Result Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::ReduceScatterOptions& options) {
  const comm::ReduceOp op = op_of(options.reduceOp, "reduce_scatter_tensor");
  return add(OpType::_REDUCE_SCATTER_BASE, "lockstep:reduce_scatter_tensor", {input}, {output}, options.asyncOp,
             [output, input, op](Group& group) { group.reduce_scatter(output, input, op); });
}

Backend::Result Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                         const c10d::ReduceScatterOptions& options) {
  const comm::ReduceOp op = op_of(options.reduceOp, "reduce_scatter_tensor");
  check_count(outputs, int(inputs.size()), "reduce_scatter_tensor");
  return add(OpType::REDUCE_SCATTER, "lockstep:reduce_scatter_tensor", inputs, outputs, options.asyncOp,
             [outputs, inputs, op](Group& group) {
               for (std::size_t i = 0; i < inputs.size(); ++i) group.reduce_scatter(outputs[i], inputs[i], op);
             });
}

Backend::Result Backend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                                       std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  check_on_cpu({output, input}, "all_to_all");
  // Ranks that divide evenly need not say so, though others may have to.
  const auto splits_of = [&](const std::vector<std::int64_t>& given, const at::Tensor& tensor) {
    if (!given.empty()) return given;
    const std::int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 0;
    TORCH_CHECK_VALUE(rows % size_ == 0, "all_to_all: ", rows, " rows for ", size_, " ranks need split sizes");
    return std::vector<std::int64_t>(std::size_t(size_), rows / size_);
  };
  if (output_splits.empty() && input_splits.empty())
    return add(OpType::ALLTOALL_BASE, "lockstep:all_to_all", {input}, {output}, options.asyncOp,
               [output, input](Group& group) { group.all_to_all(output, input); });
  return add(OpType::ALLTOALL_BASE, "lockstep:all_to_all", {input}, {output}, options.asyncOp,
             [output, input, from = splits_of(output_splits, output), to = splits_of(input_splits, input)](
                 Group& group) { put_rows(output, comm::all_to_all_uneven(group, input, to), from); });
}

Backend::Result Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  check_count(outputs, size_, "all_to_all");
  check_count(inputs, size_, "all_to_all");
  check_on_cpu(outputs, "all_to_all");
  check_on_cpu(inputs, "all_to_all");
  return add(OpType::ALLTOALL, "lockstep:all_to_all", inputs, outputs, options.asyncOp,
             [outputs, inputs](Group& group) {
               std::vector<std::int64_t> to, from;
               for (const at::Tensor& tensor : inputs) to.push_back(tensor.numel());
               for (const at::Tensor& tensor : outputs) from.push_back(tensor.numel());
               const comm::Received received = comm::all_to_all_uneven(group, flat(inputs), to);
               TORCH_CHECK_VALUE(received.splits == from && received.output.scalar_type() == outputs[0].scalar_type(),
                                 "all_to_all: this rank expects ", from, " elements from the ranks and was sent ",
                                 received.splits);
               const Tensors parts = received.output.split_with_sizes(from);
               put_all(outputs, parts);
             });
}

Backend::Result Backend::barrier(const c10d::BarrierOptions& options) {
  return add(OpType::BARRIER, "lockstep:barrier", {}, {}, options.asyncOp, [](Group& group) { group.barrier(); });
}

Backend::Result Backend::add(OpType type, const char* name, comm::P2POp op) {
  auto work = c10::make_intrusive<Work>(rank_, type, name, Tensors{op.tensor}, Tensors{op.tensor}, nullptr);
  try {
    turns_->add(work, std::move(op));
  } catch (const UsageError&) {
    std::rethrow_exception(for_python(std::current_exception()));
  }
  return work;
}

Backend::Result Backend::send(Tensors& tensors, int to, int tag) {
  return add(OpType::SEND, "lockstep:send",
             {.way = comm::Way::send, .tensor = only(tensors, "send"), .peer = to, .tag = tag});
}

Backend::Result Backend::recv(Tensors& tensors, int from, int tag) {
  return add(OpType::RECV, "lockstep:recv",
             {.way = comm::Way::recv, .tensor = only(tensors, "recv"), .peer = from, .tag = tag});
}

Backend::Result Backend::recvAnysource(Tensors&, int) {
  TORCH_CHECK_VALUE(false, "recv: a lockstep process group needs the rank to receive from: recv(tensor, src)");
}

at::Tensor Backend::shared_empty(const std::vector<std::int64_t>& sizes, at::ScalarType dtype) {
  at::Tensor made;
  add(OpType::UNKNOWN, "lockstep:shared_empty", {}, {}, /*is_async=*/false, [&](Group& group) {
    made = group.shared_empty(sizes, dtype);
  })->wait();
  return made;
}

void Backend::abort() { turns_->abort("rank " + std::to_string(rank_) + " has aborted the process group"); }

}  // namespace lockstep::python
