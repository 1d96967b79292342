#include "lockstep/comm/shm/shm_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

#include "lockstep/comm/checks.h"
#include "lockstep/comm/gathering.h"
#include "lockstep/comm/host_memory.h"
#include "lockstep/comm/reduce/reduce.h"
#include "lockstep/comm/shm/courier.h"
#include "lockstep/comm/shm/in_collective.h"
#include "lockstep/comm/shm/reduction_of.h"

namespace lockstep::comm {
namespace {

// The parts that the ranks reduce for all begin on such edges: whole cache lines.
constexpr std::size_t kEdge = 64;

std::string text_of(const void* note) { return describe(*static_cast<const CollectiveNote*>(note)); }

// Ranks come to meetings and to barriers, which are counted apart, in one order. So a peer that has come to more
// barriers than this rank, and not yet to the meeting that this rank is in, never comes there.
bool is_in_other_barrier(const base::Member& member, int peer) {
  if (!member.compares_calls()) return false;
  const auto barriers = [&](int rank) {
    const base::Mark arrived = member.page().ranks[rank].arrived.load(std::memory_order_seq_cst);
    return base::mark_generation(arrived) == member.generation() ? base::mark_count(arrived) : 0;
  };
  return barriers(peer) > barriers(member.rank());
}

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }

// Where rank `rank`'s part of `elements` begins, on an edge of cache lines.
std::size_t part_begin(std::size_t elements, std::size_t width, int rank, int size) {
  const std::size_t lines = (elements * width + kEdge - 1) / kEdge;
  return std::min(elements, lines * std::size_t(rank) / std::size_t(size) * (kEdge / width));
}

}  // namespace

ShmGroup::ShmGroup(base::Segment segment, int rank, std::chrono::milliseconds timeout, base::Whole whole)
    : NodeGroup(on_one_node(rank, segment.control().local_world)),
      node_(std::move(segment), rank, timeout, std::move(whole)),
      staging_(node_),
      tensors_(rank),
      by_rank_(std::size_t(node_.member.size())) {}

template <class Fill>
void ShmGroup::meet(const CollectiveNote& note, Fill&& fill) {
  node_.member.check_abort();
  const base::Mark mark = base::make_mark(node_.member.generation(), ++meetings_);
  post_ = int(meetings_ & 1);
  Post& mine = staging_.post(rank(), post_);
  mine.note = note;
  fill(mine.payload);
  base::advance(mine.mark, mark);
  const Described described(node_.member, {.text = text_of, .of = &note});
  const auto missing = [&](int peer) {
    return !base::has_reached(staging_.post(peer, post_).mark.load(std::memory_order_seq_cst), mark);
  };
  node_.member.meet([&](int peer) {
    if (!missing(peer)) return false;
    // What it has come to since, its post is read behind that.
    if (is_in_other_barrier(node_.member, peer) && missing(peer)) refuse_other_barrier(note, peer);
    return true;
  });
  check_notes(note, post_);
}

// Both would wait for each other: this rank in its call, the peer in a barrier that this one has not come to.
void ShmGroup::refuse_other_barrier(const CollectiveNote& mine, int peer) {
  const base::RankWords& theirs = node_.member.page().ranks[peer];
  const std::string cause = "ranks disagree: rank " + std::to_string(node_.member.name_of(rank())) + " calls " +
                            describe(mine) + ", rank " + std::to_string(node_.member.name_of(peer)) + " is in step " +
                            std::to_string(theirs.step.load(std::memory_order_relaxed)) + " (" +
                            std::string(to_string(base::Phase(theirs.phase.load(std::memory_order_relaxed)))) + ")";
  node_.member.fail(cause);
  throw Error(cause);
}

void ShmGroup::check_notes(const CollectiveNote& mine, int which) {
  if (!node_.member.compares_calls()) return;
  for (int peer = 0; peer < size(); ++peer) {
    const CollectiveNote& theirs = staging_.post(peer, which).note;
    if (theirs == mine) continue;
    const std::string cause = disagreement(node_.member.name_of(rank()), mine, node_.member.name_of(peer), theirs);
    node_.member.fail(cause);
    throw Error(cause);
  }
}

Place ShmGroup::place_of(const Load& load) const {
  return load.data == nullptr || load.bytes() <= sizes_.at_once ? Place{} : tensors_.find(load.data, load.bytes());
}

Place ShmGroup::place_at(int peer) const {
  Place place;
  std::memcpy(&place, staging_.post(peer, post_).payload, sizeof place);
  return place;
}

template <class Write>
ShmGroup::Route ShmGroup::begin(const Load& load, Write&& write) {
  const std::size_t n = load.elements;
  if (load.bytes() <= Post::kPayload) {
    meet(load.note, [&](std::byte* payload) {
      if (n > 0) write(payload, std::size_t(0), n);
    });
    for (int peer = 0; peer < size(); ++peer) by_rank_[std::size_t(peer)] = staging_.post(peer, post_).payload;
    return Route::posts;
  }
  const Place mine = place_of(load);
  // A tensor that is not in shared memory has its first chunk in place when it says so.
  if (mine.region == 0) write(staging_.half(rank(), half_), std::size_t(0), std::min(n, chunk_of(load)));
  meet(load.note, [&](std::byte* payload) { std::memcpy(payload, &mine, sizeof mine); });
  bool nobody = true;
  bool everybody = mine.region != 0;
  for (int peer = 0; peer < size(); ++peer) {
    const std::uint64_t region = place_at(peer).region;
    nobody = nobody && region == 0;
    everybody = everybody && region == mine.region;
  }
  if (everybody) {
    for (int peer = 0; peer < size(); ++peer) by_rank_[std::size_t(peer)] = tensors_.peer_data(place_at(peer), peer);
    return Route::direct;
  }
  if (nobody) return Route::staged;
  half_ = 1 - half_;  // the first chunk of some was in vain; by now all know it
  write(staging_.half(rank(), half_), std::size_t(0), std::min(n, chunk_of(load)));
  node_.member.barrier();
  return Route::staged;
}

void ShmGroup::point_to_halves(int half) {
  for (int peer = 0; peer < size(); ++peer) by_rank_[std::size_t(peer)] = staging_.half(peer, half);
}

template <class Write, class Read, class Direct>
void ShmGroup::exchange(const Load& load, Write&& write, Read&& read, Direct&& direct) {
  InCollective in_collective(node_.member);
  switch (begin(load, write)) {
    case Route::posts:
      if (load.elements > 0) read(by_rank_, std::size_t(0), load.elements);
      return;
    case Route::direct:
      direct(by_rank_);
      return node_.member.barrier();
    case Route::staged:
      return exchange_chunks(load, write, read);
  }
}

template <class Write, class Read>
void ShmGroup::exchange_chunks(const Load& load, Write&& write, Read&& read) {
  const std::size_t chunk = chunk_of(load);
  for (std::size_t first = 0; first < load.elements; first += chunk) {
    const std::size_t n = std::min(chunk, load.elements - first);
    const int half = std::exchange(half_, 1 - half_);
    if (first > 0) {
      write(staging_.half(rank(), half), first, n);
      node_.member.barrier();
    }
    point_to_halves(half);
    read(by_rank_, first, n);
  }
}

// One meeting for a chunk and one more: behind the meeting of chunk c all have written chunk c and are done with
// working on chunk c - 1. A half is free for its own rank as soon as that has taken the result out.
template <class Write, class Work, class Take>
void ShmGroup::work_on_chunks(const Load& load, Write&& write, Work&& work, Take&& take) {
  const std::size_t chunk = chunk_of(load);
  const auto length = [&](std::size_t first) { return std::min(chunk, load.elements - first); };
  for (std::size_t first = 0; first < load.elements; first += chunk) {
    const int half = std::exchange(half_, 1 - half_);
    const std::size_t next = first + chunk;
    if (first > 0) take(staging_.half(rank(), half_), first - chunk, chunk);
    point_to_halves(half);
    work(by_rank_, first, length(first));
    if (next < load.elements) write(staging_.half(rank(), half_), next, length(next));
    node_.member.barrier();
    if (next >= load.elements) take(staging_.half(rank(), half), first, length(first));
  }
}

void ShmGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  check_reducible(tensor, op, "all_reduce");
  if (!lies_in_host(tensor)) {
    const at::Tensor dense = host_values(tensor);
    all_reduce(dense, op);
    tensor.detach().copy_(dense);
    return;
  }
  std::byte* data = bytes_of(tensor);
  const std::size_t width = tensor.element_size();
  const auto elements = std::size_t(tensor.numel());
  const Load load{make_note(Collective::all_reduce, int(op), tensor), elements, width, data};
  const Reduction reduction = reduction_of(tensor.scalar_type(), op, size());
  // Each rank reduces its part of all ranks' data and leaves the result with all.
  const auto reduce_part = [&](const std::vector<std::byte*>& parts, std::size_t n) {
    tree_reduce(reduction, {parts.data(), size(), parts.data(), size()}, part_begin(n, width, rank(), size()),
                part_begin(n, width, rank() + 1, size()));
  };
  if (load.bytes() > sizes_.at_once) return reduce_in_parts(load, data, reduce_part);
  exchange(
      load,
      [&](std::byte* part, std::size_t first, std::size_t n) { std::memcpy(part, data + first * width, n * width); },
      [&](std::vector<std::byte*>& parts, std::size_t first, std::size_t n) {
        std::byte* out = data + first * width;
        parts[std::size_t(rank())] = out;
        tree_reduce(reduction, {parts.data(), size(), &out, 1}, 0, n);
      },
      [](const std::vector<std::byte*>&) {});
}

// Of a chunk only what the peers reduce goes through this rank's half; its own part it reduces where the data is.
template <class Reduce>
void ShmGroup::reduce_in_parts(const Load& load, std::byte* data, Reduce&& reduce) {
  InCollective in_collective(node_.member);
  const auto copy_others = [&](std::byte* to, const std::byte* from, std::size_t n) {
    const std::size_t mine = part_begin(n, load.width, rank(), size()) * load.width;
    const std::size_t rest = part_begin(n, load.width, rank() + 1, size()) * load.width;
    std::memcpy(to, from, mine);
    std::memcpy(to + rest, from + rest, n * load.width - rest);
  };
  const auto write = [&](std::byte* half, std::size_t first, std::size_t n) {
    copy_others(half, data + first * load.width, n);
  };
  if (begin(load, write) == Route::direct) {
    reduce(by_rank_, load.elements);
    return node_.member.barrier();
  }
  work_on_chunks(
      load, write,
      [&](std::vector<std::byte*>& parts, std::size_t first, std::size_t n) {
        parts[std::size_t(rank())] = data + first * load.width;
        reduce(parts, n);
      },
      [&](const std::byte* half, std::size_t first, std::size_t n) {
        copy_others(data + first * load.width, half, n);
      });
}

void ShmGroup::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  check_reduce_scatter(output, input, op, rank(), size());
  if (!lies_in_host(output) || !lies_in_host(input)) {
    const at::Tensor dense = new_host_room(output);
    reduce_scatter(dense, host_values(input), op);
    output.detach().copy_(dense);
    return;
  }
  std::byte* out = bytes_of(output);
  const std::byte* data = bytes_of(input);
  const std::size_t width = output.element_size();
  const std::size_t part = std::size_t(output.numel()) * width;  // bytes
  const std::size_t count = std::size_t(size());
  const Reduction reduction = reduction_of(output.scalar_type(), op, size());
  // A chunk has so many elements for each rank, one rank's after the other's.
  exchange(
      {make_note(Collective::reduce_scatter, int(op), output), std::size_t(output.numel()), width * count, data},
      [&](std::byte* to, std::size_t first, std::size_t n) {
        for (std::size_t peer = 0; peer < count; ++peer)
          std::memcpy(to + peer * n * width, data + peer * part + first * width, n * width);
      },
      [&](std::vector<std::byte*>& parts, std::size_t first, std::size_t n) {
        for (std::byte*& from : parts) from += std::size_t(rank()) * n * width;
        std::byte* to = out + first * width;
        tree_reduce(reduction, {parts.data(), size(), &to, 1}, 0, n);
      },
      [&](std::vector<std::byte*>& tensors) {
        for (std::byte*& from : tensors) from += std::size_t(rank()) * part;
        tree_reduce(reduction, {tensors.data(), size(), &out, 1}, 0, std::size_t(output.numel()));
      });
}

void ShmGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  check_all_to_all(output, input, size());
  if (!lies_in_host(output) || !lies_in_host(input)) {
    const at::Tensor dense = new_host_room(output);
    all_to_all(dense, host_values(input));
    output.detach().copy_(dense);
    return;
  }
  std::byte* out = bytes_of(output);
  const std::byte* data = bytes_of(input);
  const std::size_t width = input.element_size();
  const std::size_t count = std::size_t(size());
  const std::size_t elements = std::size_t(input.numel()) / count;
  const std::size_t part = elements * width;  // bytes
  // Takes from each rank's `stride` bytes for each rank what is this rank's.
  const auto take = [&](const std::vector<std::byte*>& from, std::size_t stride, std::size_t first) {
    for (std::size_t peer = 0; peer < count; ++peer)
      std::memcpy(out + peer * part + first * width, from[peer] + std::size_t(rank()) * stride, stride);
  };
  exchange(
      {make_note(Collective::all_to_all, 0, input), elements, width * count, data},
      [&](std::byte* to, std::size_t first, std::size_t n) {
        for (std::size_t peer = 0; peer < count; ++peer)
          std::memcpy(to + peer * n * width, data + peer * part + first * width, n * width);
      },
      [&](const std::vector<std::byte*>& parts, std::size_t first, std::size_t n) { take(parts, n * width, first); },
      [&](const std::vector<std::byte*>& tensors) { take(tensors, part, 0); });
}

void ShmGroup::broadcast(const at::Tensor& tensor, int root) {
  check_dense(tensor, "broadcast");
  check_root(root, size());
  const at::Tensor dense = rank() == root ? host_values(tensor) : host_room(tensor);
  std::byte* data = bytes_of(dense);
  const std::size_t width = dense.element_size();
  const auto elements = std::size_t(dense.numel());
  exchange(
      {make_note(Collective::broadcast, root, dense), elements, width, data},
      [&](std::byte* part, std::size_t first, std::size_t n) {
        if (rank() == root) std::memcpy(part, data + first * width, n * width);
      },
      [&](const std::vector<std::byte*>& parts, std::size_t first, std::size_t n) {
        if (rank() != root) std::memcpy(data + first * width, parts[std::size_t(root)], n * width);
      },
      [&](const std::vector<std::byte*>& tensors) {
        if (rank() != root) std::memcpy(data, tensors[std::size_t(root)], elements * width);
      });
  if (rank() != root && !dense.is_same(tensor)) tensor.detach().copy_(dense);
}

std::vector<at::Tensor> ShmGroup::all_gather(const at::Tensor& tensor) {
  return gather_all(tensor, size(), [this](const auto& outputs, const at::Tensor& dense) { gather(outputs, dense); });
}

void ShmGroup::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) {
  gather_into(output, input, rank(), size(),
              [this](const auto& outputs, const at::Tensor& dense) { gather(outputs, dense); });
}

void ShmGroup::gather(const std::vector<at::Tensor>& outputs, const at::Tensor& dense) {
  const std::byte* data = bytes_of(dense);
  const std::size_t width = dense.element_size();
  const auto take = [&](const std::vector<std::byte*>& parts, std::size_t first, std::size_t n) {
    for (std::size_t peer = 0; peer < parts.size(); ++peer) {
      std::byte* const to = bytes_of(outputs[peer]) + first * width;
      if (to != parts[peer]) std::memcpy(to, parts[peer], n * width);
    }
  };
  exchange(
      {make_note(Collective::all_gather, 0, dense), std::size_t(dense.numel()), width, data},
      [&](std::byte* part, std::size_t first, std::size_t n) { std::memcpy(part, data + first * width, n * width); },
      take, [&](const std::vector<std::byte*>& tensors) { take(tensors, 0, std::size_t(dense.numel())); });
}

void ShmGroup::exchange_bytes(const CollectiveNote& note, std::size_t elements, std::size_t width, const PutChunk& put,
                              const TakeChunk& take) {
  static_assert(kWidest <= Staging::kHalf, "a chunk has one element at least");
  exchange({note, elements, width, nullptr}, put, take, [](const std::vector<std::byte*>&) {});
}

void ShmGroup::barrier() {
  InCollective in_collective(node_.member);
  meet({.collective = Collective::barrier}, [](std::byte*) {});
}

// However it ends early, messages are left half moved: the group is of no use any more.
void ShmGroup::carry(Messages& messages) {
  try {
    Courier(node_.member, staging_, half_, messages).run();
  } catch (const GroupAborted&) {
    throw;
  } catch (const std::exception& error) {
    node_.member.fail(error.what());
    throw;
  }
}

at::Tensor ShmGroup::shared_empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  check_sizes(sizes);
  const std::int64_t elements = c10::multiply_integers(sizes);
  InCollective in_collective(node_.member);
  meet({.collective = Collective::shared_empty, .dtype = std::int32_t(dtype), .elements = elements}, [](std::byte*) {});
  if (elements == 0) return at::empty(sizes, dtype);
  try {
    return tensors_.adopt(make_region(std::size_t(elements) * c10::elementSize(dtype)), sizes, dtype);
  } catch (const UsageError&) {
    throw;  // by all ranks
  } catch (const std::exception& error) {
    node_.member.fail(error.what());
    throw;
  }
}

}  // namespace lockstep::comm
