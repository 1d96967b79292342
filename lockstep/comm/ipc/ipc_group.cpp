#include "lockstep/comm/ipc/ipc_group.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/TensorBody.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/where.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/tree.h"
#include "lockstep/comm/checks.h"
#include "lockstep/comm/device_streams.h"
#include "lockstep/comm/or_abort.h"

namespace lockstep::comm::ipc {
namespace {

bool in_host(const at::Tensor& tensor) { return !tensor.defined() || tensor.device().is_cpu(); }

// All elements one behind the other; the tensor's own memory where it is so.
at::Tensor flat_values(const at::Tensor& tensor) { return tensor.detach().contiguous().view({-1}); }

at::Tensor flat_room(const at::Tensor& output) {
  if (output.is_contiguous()) return output.detach().view({-1});
  return at::empty({output.numel()}, output.options().requires_grad(false));
}

void put_flat(const at::Tensor& output, const at::Tensor& flat) {
  if (flat.const_data_ptr() != output.const_data_ptr()) output.detach().copy_(flat.view(output.sizes()));
}

// As reduce/kernel.h has each: of two zeros min and max give the second, and a NaN on either side stays.
at::Tensor combined(ReduceOp op, const at::Tensor& a, const at::Tensor& b) {
  const bool logical = a.scalar_type() == at::kBool;
  switch (op) {
    case ReduceOp::min:
      return logical ? at::logical_and(a, b) : at::where((a < b).logical_or_(a.ne(a)), a, b);
    case ReduceOp::max:
      return logical ? at::logical_or(a, b) : at::where((a > b).logical_or_(a.ne(a)), a, b);
    case ReduceOp::product:
      return logical ? at::logical_and(a, b) : a * b;
    default:
      return logical ? at::logical_or(a, b) : a + b;
  }
}

template <class Leaf>
at::Tensor tree_of_ranks(ReduceOp op, int begin, int end, const Leaf& leaf) {
  if (end - begin == 1) return leaf(begin);
  const int middle = begin + base::tree_split(end - begin);
  return combined(op, tree_of_ranks(op, begin, middle, leaf), tree_of_ranks(op, middle, end, leaf));
}

}  // namespace

IpcGroup::IpcGroup(std::shared_ptr<Group> inner, const PeerMemory& memory)
    : WrappedGroup(inner), inner_(std::move(inner)), memory_(memory) {
  if (topology().local_world != topology().world)
    throw UsageError("ipc: memory of devices is shared by ranks of one node, and of " +
                     std::to_string(topology().world) + " ranks " + std::to_string(topology().local_world) +
                     " are on this one; take 'nccl', or 'auto'");
}

IpcGroup::~IpcGroup() = default;

void IpcGroup::agree(const CollectiveNote& note) {
  static_assert(sizeof note == 2 * sizeof(std::int64_t) && std::is_trivially_copyable_v<CollectiveNote>);
  const at::Tensor mine = at::empty({2}, at::kLong), all = at::empty({size(), 2}, at::kLong);
  std::memcpy(mine.mutable_data_ptr(), &note, sizeof note);
  inner_->all_gather_into_tensor(all, mine);
  if (base::Node* const node = shared_node(); node != nullptr && !node->member.compares_calls()) return;
  for (int peer = 0; peer < size(); ++peer) {
    CollectiveNote theirs;
    std::memcpy(&theirs, static_cast<const std::byte*>(all.const_data_ptr()) + std::size_t(peer) * sizeof theirs,
                sizeof theirs);
    if (theirs == note) continue;
    const std::string cause = disagreement(rank(), note, peer, theirs);
    inner_->abort(cause);
    throw Error(cause);
  }
}

void IpcGroup::make_buffer(c10::Device device) {
  or_abort(*inner_, [&] {
    if (buffer_ != nullptr && buffer_->device() != device)
      throw UsageError("ipc: rank " + std::to_string(rank()) + " gives a tensor on " + device.str() + ", and one on " +
                       buffer_->device().str() + " before; a group is for one device of each rank");
  });
  if (buffer_ == nullptr) buffer_ = std::make_unique<ExchangeBuffer>(*inner_, memory_, device);
}

// A piece is written into one half of the area while the other may still be read. Who comes to the meeting of piece n
// has waited for its device, which has then read piece n - 1; so that half may be written behind the meeting.
void IpcGroup::exchange(const CollectiveNote& note, c10::Device device, std::int64_t elements, std::size_t width,
                        int slots, const Queue& give, const Queue& take) {
  const c10::DeviceGuard here(device);
  const c10::Stream stream = current_stream(device);
  agree(note);
  if (elements == 0) return;
  make_buffer(device);
  const auto most = std::int64_t(ExchangeBuffer::kPieceBytes / (width * std::size_t(slots)));
  Piece piece;
  for (; piece.first < elements; piece.first += piece.count, ++piece.number) {
    piece.count = std::min(most, elements - piece.first);
    or_abort(*inner_, [&] {
      give(piece);
      stream.synchronize();
    });
    inner_->barrier();
    or_abort(*inner_, [&] { take(piece); });
  }
  or_abort(*inner_, [&] { stream.synchronize(); });
  inner_->barrier();
}

// What all ranks have at byte `slot` of the piece.
at::Tensor IpcGroup::reduced(ReduceOp op, at::ScalarType dtype, const Piece& piece, std::size_t slot) const {
  const bool narrow = dtype == at::kHalf || dtype == at::kBFloat16;
  const at::Tensor all = tree_of_ranks(op, 0, size(), [&](int peer) {
    const at::Tensor part = buffer_->part(peer, piece.number, slot, piece.count, dtype);
    return narrow ? part.to(at::kFloat) : part;
  });
  return op == ReduceOp::mean ? all * (1.0 / size()) : all;
}

void IpcGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  if (in_host(tensor)) return inner_->all_reduce(tensor, op);
  check_reducible(tensor, op, "all_reduce");
  const at::Tensor flat = flat_values(tensor);
  const at::ScalarType dtype = flat.scalar_type();
  exchange(
      make_note(Collective::all_reduce, int(op), flat), flat.device(), flat.numel(), flat.element_size(), 1,
      [&](const Piece& piece) {
        buffer_->part(rank(), piece.number, 0, piece.count, dtype).copy_(flat.narrow(0, piece.first, piece.count));
      },
      [&](const Piece& piece) { flat.narrow(0, piece.first, piece.count).copy_(reduced(op, dtype, piece, 0)); });
  put_flat(tensor, flat);
}

void IpcGroup::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  if (in_host(output) && in_host(input)) return inner_->reduce_scatter(output, input, op);
  check_reduce_scatter(output, input, op, rank(), size());
  const at::Tensor from = flat_values(input), to = flat_room(output);
  const at::ScalarType dtype = to.scalar_type();
  const std::size_t width = to.element_size();
  exchange(
      make_note(Collective::reduce_scatter, int(op), to), to.device(), to.numel(), width, size(),
      [&](const Piece& piece) {
        for (int peer = 0; peer < size(); ++peer)
          buffer_->part(rank(), piece.number, std::size_t(peer * piece.count) * width, piece.count, dtype)
              .copy_(from.narrow(0, peer * to.numel() + piece.first, piece.count));
      },
      [&](const Piece& piece) {
        to.narrow(0, piece.first, piece.count)
            .copy_(reduced(op, dtype, piece, std::size_t(rank() * piece.count) * width));
      });
  put_flat(output, to);
}

// From here on dtypes do not matter: bytes are moved.
void IpcGroup::broadcast(const at::Tensor& tensor, int root) {
  if (in_host(tensor)) return inner_->broadcast(tensor, root);
  check_dense(tensor, "broadcast");
  check_root(root, size());
  const at::Tensor flat = flat_values(tensor), bytes = flat.view(at::kByte);
  exchange(
      make_note(Collective::broadcast, root, flat), flat.device(), bytes.numel(), 1, 1,
      [&](const Piece& piece) {
        if (rank() != root) return;
        buffer_->part(root, piece.number, 0, piece.count, at::kByte).copy_(bytes.narrow(0, piece.first, piece.count));
      },
      [&](const Piece& piece) {
        if (rank() == root) return;
        bytes.narrow(0, piece.first, piece.count).copy_(buffer_->part(root, piece.number, 0, piece.count, at::kByte));
      });
  if (rank() != root) put_flat(tensor, flat);
}

void IpcGroup::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) {
  if (in_host(output) && in_host(input)) return inner_->all_gather_into_tensor(output, input);
  check_all_gather_into(output, input, rank(), size());
  const at::Tensor flat = flat_values(input), to = flat_room(output);
  const at::Tensor given = flat.view(at::kByte), got = to.view(at::kByte);
  exchange(
      make_note(Collective::all_gather, 0, flat), flat.device(), given.numel(), 1, 1,
      [&](const Piece& piece) {
        buffer_->part(rank(), piece.number, 0, piece.count, at::kByte).copy_(given.narrow(0, piece.first, piece.count));
      },
      [&](const Piece& piece) {
        for (int peer = 0; peer < size(); ++peer)
          got.narrow(0, peer * given.numel() + piece.first, piece.count)
              .copy_(buffer_->part(peer, piece.number, 0, piece.count, at::kByte));
      });
  put_flat(output, to);
}

void IpcGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  if (in_host(output) && in_host(input)) return inner_->all_to_all(output, input);
  check_all_to_all(output, input, size());
  const at::Tensor flat = flat_values(input), to = flat_room(output);
  const at::Tensor given = flat.view(at::kByte), got = to.view(at::kByte);
  const std::int64_t part = given.numel() / size();
  exchange(
      make_note(Collective::all_to_all, 0, flat), flat.device(), part, 1, size(),
      [&](const Piece& piece) {
        for (int peer = 0; peer < size(); ++peer)
          buffer_->part(rank(), piece.number, std::size_t(peer * piece.count), piece.count, at::kByte)
              .copy_(given.narrow(0, peer * part + piece.first, piece.count));
      },
      [&](const Piece& piece) {
        for (int peer = 0; peer < size(); ++peer)
          got.narrow(0, peer * part + piece.first, piece.count)
              .copy_(buffer_->part(peer, piece.number, std::size_t(rank() * piece.count), piece.count, at::kByte));
      });
  put_flat(output, to);
}

std::shared_ptr<Group> IpcGroup::new_group(const std::vector<int>& ranks) {
  std::shared_ptr<Group> made = inner_->new_group(ranks);
  return made == nullptr ? nullptr : std::make_shared<IpcGroup>(std::move(made), memory_);
}

std::shared_ptr<Group> over_device_memory(std::shared_ptr<Group> inner) {
  const PeerMemory* const memory = device::cuda_peer_memory();
  if (memory == nullptr) throw UsageError("ipc: this libtorch is for CPUs only: there is no libcudart in this process");
  return std::make_shared<IpcGroup>(std::move(inner), *memory);
}

}  // namespace lockstep::comm::ipc
