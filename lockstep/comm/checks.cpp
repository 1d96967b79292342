#include "lockstep/comm/checks.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "lockstep/comm/network/wire.h"

namespace lockstep::comm {
namespace {

std::string list_of(const at::Tensor& members) {
  std::string list;
  for (std::int64_t rank = 0; rank < members.numel(); ++rank)
    if (members.const_data_ptr<bool>()[rank]) list += (list.empty() ? "" : ", ") + std::to_string(rank);
  return list;
}

// One rank writes what others still read. Of tensors with gaps nobody can say it in a moment.
bool overlap(const at::Tensor& one, const at::Tensor& other) {
  if (one.numel() == 0) return false;  // equal to itself, which is told before its size
  const at::MemOverlapStatus status = at::get_overlap_status(one, other);
  return status == at::MemOverlapStatus::Full || status == at::MemOverlapStatus::Partial;
}

// Whether `part` lies where the part of rank `rank` of `whole` does.
bool is_in_place(const at::Tensor& part, const at::Tensor& whole, int rank) {
  return part.is_contiguous() && whole.is_contiguous() &&
         static_cast<const std::byte*>(whole.const_data_ptr()) + std::size_t(rank) * part.nbytes() ==
             part.const_data_ptr();
}

}  // namespace

void check_dense(const at::Tensor& tensor, const char* collective) {
  if (!tensor.defined()) throw UsageError(std::string(collective) + ": the tensor is undefined");
  if (tensor.layout() != at::kStrided)
    throw UsageError(std::string(collective) + ": needs a dense tensor, this one is sparse, on " +
                     tensor.device().str());
  if (!tensor.device().is_cpu() && !at::accelerator::isAccelerator(tensor.device().type()))
    throw UsageError(std::string(collective) +
                     ": needs a tensor of the CPU or of a device that computes, this one is on " +
                     tensor.device().str());
  if (tensor.is_conj() || tensor.is_neg())
    throw UsageError(std::string(collective) + ": this tensor is conjugated or negated only when it is read; " +
                     "resolve_conj() or resolve_neg() gives one that is");
}

void check_cpu(const at::Tensor& tensor, const char* collective) {
  check_dense(tensor, collective);
  if (!tensor.device().is_cpu())
    throw UsageError(std::string(collective) + ": needs a CPU tensor, this one is on " + tensor.device().str());
}

void check_one_device(const at::Tensor& output, const at::Tensor& input, const char* collective) {
  if (output.device() == input.device()) return;
  throw UsageError(std::string(collective) + ": output is on " + output.device().str() + ", input on " +
                   input.device().str());
}

void check_writable(const at::Tensor& tensor, const char* collective) {
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
    throw UsageError(std::string(collective) + ": several elements of the tensor are one, as expand() makes them; " +
                     "contiguous() gives each its own");
}

void check_reducible(const at::Tensor& tensor, ReduceOp op, const char* collective) {
  check_dense(tensor, collective);
  switch (tensor.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kBFloat16:
    case at::kHalf:
      return;
    case at::kChar:
    case at::kByte:
    case at::kInt:
    case at::kLong:
    case at::kBool:
      if (op != ReduceOp::mean) return;
      throw UsageError(std::string(collective) + ": " + c10::toString(tensor.scalar_type()) +
                       " has no mean; sum and divide");
    default:
      throw UsageError(std::string(collective) + ": dtype " + c10::toString(tensor.scalar_type()) +
                       " is not one of float32, float64, bfloat16, float16, int8, uint8, int32, int64, bool");
  }
}

void check_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op, int rank, int size) {
  check_reducible(input, op, "reduce_scatter");
  check_dense(output, "reduce_scatter");
  check_one_device(output, input, "reduce_scatter");
  check_writable(output, "reduce_scatter");
  if (output.scalar_type() != input.scalar_type())
    throw UsageError(std::string("reduce_scatter: output is ") + c10::toString(output.scalar_type()) + ", input is " +
                     c10::toString(input.scalar_type()));
  if (output.numel() * size != input.numel())
    throw UsageError("reduce_scatter: input has " + std::to_string(input.numel()) + " elements, not " +
                     std::to_string(size) + " times the " + std::to_string(output.numel()) + " of output");
  if (overlap(output, input) && !is_in_place(output, input, rank))
    throw UsageError(
        "reduce_scatter: output overlaps input; of a contiguous input it may be this rank's part, and nothing else");
}

void check_all_to_all(const at::Tensor& output, const at::Tensor& input, int size) {
  check_dense(input, "all_to_all");
  check_dense(output, "all_to_all");
  check_one_device(output, input, "all_to_all");
  check_writable(output, "all_to_all");
  if (output.scalar_type() != input.scalar_type())
    throw UsageError(std::string("all_to_all: output is ") + c10::toString(output.scalar_type()) + ", input is " +
                     c10::toString(input.scalar_type()));
  if (output.numel() != input.numel() || input.numel() % size != 0)
    throw UsageError("all_to_all: input has " + std::to_string(input.numel()) + " elements, output " +
                     std::to_string(output.numel()) + "; both need the same multiple of " + std::to_string(size));
  if (size > 1 && overlap(output, input)) throw UsageError("all_to_all: output overlaps input");
}

void check_all_gather_into(const at::Tensor& output, const at::Tensor& input, int rank, int size) {
  check_dense(input, "all_gather_into_tensor");
  check_dense(output, "all_gather_into_tensor");
  check_one_device(output, input, "all_gather_into_tensor");
  check_writable(output, "all_gather_into_tensor");
  if (output.scalar_type() != input.scalar_type())
    throw UsageError(std::string("all_gather_into_tensor: output is ") + c10::toString(output.scalar_type()) +
                     ", input is " + c10::toString(input.scalar_type()));
  if (output.numel() != input.numel() * size)
    throw UsageError("all_gather_into_tensor: output has " + std::to_string(output.numel()) + " elements, not " +
                     std::to_string(size) + " times the " + std::to_string(input.numel()) + " of input");
  if (overlap(output, input) && !is_in_place(input, output, rank))
    throw UsageError(
        "all_gather_into_tensor: input overlaps output; of a contiguous output it may be this rank's part, and "
        "nothing else");
}

void check_message(const at::Tensor& tensor, int peer, int tag, int rank, int size, const char* way) {
  constexpr int kMostTag = std::numeric_limits<std::uint16_t>::max();
  check_dense(tensor, way);
  if (peer < 0 || peer >= size)
    throw UsageError(std::string(way) + ": peer " + std::to_string(peer) + " is not one of the ranks 0 to " +
                     std::to_string(size - 1));
  if (peer == rank)
    throw UsageError(std::string(way) + ": peer " + std::to_string(peer) + " is this rank; copy the tensor instead");
  if (tag < 0 || tag > kMostTag)
    throw UsageError(std::string(way) + ": tag " + std::to_string(tag) + " is not one of 0 to " +
                     std::to_string(kMostTag));
}

std::vector<at::Tensor> parts_of(const at::Tensor& dense, int size) {
  return dense.detach().view({size, dense.numel() / size}).unbind();
}

void check_ranks(const std::vector<int>& ranks, int size) {
  if (ranks.empty()) throw UsageError("new_group: no ranks");
  int last = -1;
  for (const int rank : ranks) {
    if (rank <= last || rank >= size)
      throw UsageError("new_group: rank " + std::to_string(rank) + " is out of place; needs rising ranks of 0 to " +
                       std::to_string(size - 1));
    last = rank;
  }
}

void agree_on_ranks(Group& group, const std::vector<int>& ranks) {
  check_ranks(ranks, group.size());
  const at::Tensor members = at::zeros({group.size()}, at::kBool);
  for (const int member : ranks) members.mutable_data_ptr<bool>()[member] = true;
  const std::vector<at::Tensor> all = group.all_gather(members);
  for (std::size_t peer = 1; peer < all.size(); ++peer)
    if (!all[peer].equal(all[0]))
      throw UsageError("new_group: rank 0 asks for the ranks " + list_of(all[0]) + ", rank " + std::to_string(peer) +
                       " for " + list_of(all[peer]));
}

int name_in_world(Group& group, int rank) {
  if (Wire* const wire = group.wire()) return wire->name_of(rank);
  base::Node* const node = group.shared_node();
  return node != nullptr ? node->member.name_of(rank) : rank;
}

void check_sizes(at::IntArrayRef sizes) {
  for (const std::int64_t extent : sizes)
    if (extent < 0) throw UsageError("shared_empty: size " + std::to_string(extent) + " is negative");
}

void check_root(int root, int size, const char* collective) {
  if (root < 0 || root >= size)
    throw UsageError(std::string(collective) + ": root " + std::to_string(root) + " is not one of the ranks 0 to " +
                     std::to_string(size - 1));
}

}  // namespace lockstep::comm
