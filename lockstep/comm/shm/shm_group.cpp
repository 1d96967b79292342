#include "lockstep/comm/shm/shm_group.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "lockstep/comm/checks.h"
#include "lockstep/comm/shm/reduce.h"

namespace lockstep::comm {
namespace {

enum Collective : std::uint32_t { kAllReduce = 1, kBroadcast = 2, kAllGather = 3, kBarrier = 4 };

std::string describe(const CollectiveNote& note) {
  const char* names[] = {"nothing", "all_reduce", "broadcast", "all_gather", "barrier"};
  if (note.collective == kBarrier) return "barrier()";
  return std::string(names[note.collective]) + "(" + std::to_string(note.elements) + " x " +
         c10::toString(c10::ScalarType(note.dtype)) + (note.collective == kBroadcast ? ", root " : ", op ") +
         std::to_string(note.detail) + ")";
}

CollectiveNote make_note(Collective collective, int detail, const at::Tensor& tensor) {
  return {.collective = collective,
          .detail = detail,
          .dtype = std::int32_t(tensor.scalar_type()),
          .elements = tensor.numel()};
}

// Marks the rank as inside a collective for the length of a scope.
class InCollective {
 public:
  explicit InCollective(base::Member& member) : member_(member), before_(member.phase()) {
    member_.set_phase(base::Phase::collective);
  }
  ~InCollective() { member_.set_phase(before_); }

 private:
  base::Member& member_;
  base::Phase before_;
};

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }

}  // namespace

ShmGroup::ShmGroup(base::Segment segment, int rank, std::chrono::milliseconds timeout)
    : node_(std::move(segment), rank, timeout), staging_(node_), by_rank_(std::size_t(node_.member.size())) {}

template <class Write, class Read>
void ShmGroup::through_staging(CollectiveNote note, std::size_t element_bytes, Write&& write, Read&& read) {
  InCollective in_collective(node_.member);
  note.sequence = sequence_++;
  const int which_note = int(note.sequence & 1);
  staging_.note(rank(), which_note) = note;
  const auto elements = std::size_t(note.elements);
  const std::size_t chunk = Staging::kHalf / element_bytes;
  std::size_t first = 0;
  do {  // once even for nothing: the notes are compared and the ranks meet
    const std::size_t n = std::min(chunk, elements - first);
    const int half = std::exchange(half_, 1 - half_);
    if (n > 0) write(staging_.half(rank(), half), first, n);
    node_.member.barrier();
    if (first == 0) check_notes(note, which_note);
    for (int peer = 0; peer < size(); ++peer) by_rank_[std::size_t(peer)] = staging_.half(peer, half);
    if (n > 0) read(by_rank_.data(), first, n);
    first += n;
  } while (first < elements);
}

void ShmGroup::check_notes(const CollectiveNote& mine, int which) {
  for (int peer = 0; peer < size(); ++peer) {
    const CollectiveNote& theirs = staging_.note(peer, which);
    if (theirs == mine) continue;
    const std::string cause = "ranks disagree: rank " + std::to_string(rank()) + " calls " + describe(mine) +
                              ", rank " + std::to_string(peer) + " calls " + describe(theirs);
    node_.member.fail(cause);
    throw Error(cause);
  }
}

void ShmGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  check_reducible(tensor, op);
  const at::Tensor dense = tensor.detach().contiguous();
  std::byte* data = bytes_of(dense);
  const std::size_t width = dense.element_size();
  const double scale = op == ReduceOp::mean ? 1.0 / size() : 1.0;
  through_staging(
      make_note(kAllReduce, int(op), dense), width,
      [&](std::byte* half, std::size_t first, std::size_t n) { std::memcpy(half, data + first * width, n * width); },
      [&](const std::byte* const* halves, std::size_t first, std::size_t n) {
        tree_reduce(dense.scalar_type(), halves, size(), data + first * width, n, scale);
      });
  if (dense.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(dense);
}

void ShmGroup::broadcast(const at::Tensor& tensor, int root) {
  check_cpu(tensor, "broadcast");
  check_root(root, size());
  const at::Tensor dense = tensor.detach().contiguous();
  std::byte* data = bytes_of(dense);
  const std::size_t width = dense.element_size();
  through_staging(
      make_note(kBroadcast, root, dense), width,
      [&](std::byte* half, std::size_t first, std::size_t n) {
        if (rank() == root) std::memcpy(half, data + first * width, n * width);
      },
      [&](const std::byte* const* halves, std::size_t first, std::size_t n) {
        if (rank() != root) std::memcpy(data + first * width, halves[root], n * width);
      });
  if (rank() != root && dense.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(dense);
}

std::vector<at::Tensor> ShmGroup::all_gather(const at::Tensor& tensor) {
  check_cpu(tensor, "all_gather");
  const at::Tensor dense = tensor.detach().contiguous();
  const std::byte* data = bytes_of(dense);
  const std::size_t width = dense.element_size();
  std::vector<at::Tensor> gathered;
  for (int peer = 0; peer < size(); ++peer) gathered.push_back(at::empty(dense.sizes(), dense.options()));
  through_staging(
      make_note(kAllGather, 0, dense), width,
      [&](std::byte* half, std::size_t first, std::size_t n) { std::memcpy(half, data + first * width, n * width); },
      [&](const std::byte* const* halves, std::size_t first, std::size_t n) {
        for (int peer = 0; peer < size(); ++peer)
          std::memcpy(bytes_of(gathered[std::size_t(peer)]) + first * width, halves[peer], n * width);
      });
  return gathered;
}

void ShmGroup::barrier() {
  through_staging(
      {.collective = kBarrier}, 1, [](auto&&...) {}, [](auto&&...) {});
}

}  // namespace lockstep::comm
