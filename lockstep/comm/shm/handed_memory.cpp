// What one rank makes and the others open: the memory of shared tensors, and the segments of groups within the group.

#include <ATen/ops/from_blob.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "lockstep/comm/checks.h"
#include "lockstep/comm/shm/shm_group.h"

namespace lockstep::comm {
namespace {

// How long the news of a process's end may come behind the loss of its files.
constexpr std::chrono::milliseconds kEndTime{300};

}  // namespace

// The others open it by the path through the maker's descriptors.
ShmGroup::Handed ShmGroup::hand_over(std::optional<Handed> made, int maker, int world, const std::string& what) {
  struct Message {
    std::int64_t pid = 0;
    std::int64_t fd = -1;
    std::uint64_t offset = 0;
  } message;
  if (made) message = {getpid(), made->segment.fd(), made->offset};
  broadcast(at::from_blob(&message, {std::int64_t(sizeof message)}, at::kByte), maker);
  if (message.fd < 0)
    throw UsageError("shared memory too small: rank " + std::to_string(node_.member.name_of(maker)) + " cannot have " +
                     what);
  if (!made) {
    const std::string path = "/proc/" + std::to_string(message.pid) + "/fd/" + std::to_string(message.fd);
    try {
      made = Handed{base::Segment::open(path, world), message.offset};
    } catch (const Error&) {
      // Where the maker has died, that is what failed; the kernel closes its files before it tells of its end.
      const auto end = std::chrono::steady_clock::now() + std::min(kEndTime, node_.member.timeout() / 2);
      node_.member.wait([&] { return std::chrono::steady_clock::now() >= end; },
                        [&](int peer) { return peer == maker; });
      throw;
    }
  }
  return std::move(*made);
}

// A memfd of its own rather than more of the node's segment, which never shrinks.
Region ShmGroup::make_region(std::size_t bytes) {
  Region region{.id = ++regions_, .mapping = {}, .stride = SharedTensors::stride_for(bytes)};
  const std::size_t whole = region.stride * std::size_t(size());
  std::optional<Handed> made;
  if (rank() == 0) {
    try {
      made = Handed{base::Segment::create(size())};
      made->offset = made->segment.grow(base::Area::tensors, whole);
    } catch (const UsageError&) {
      made.reset();
    }
  }
  const Handed handed = hand_over(std::move(made), 0, size(), std::to_string(whole) + " bytes");
  region.mapping = handed.segment.map(handed.offset, whole, base::Access::read_write);
  node_.member.barrier();  // rank 0's descriptor stays until all have opened it
  return region;
}

std::shared_ptr<NodeGroup> ShmGroup::new_node_group(const std::vector<int>& ranks) {
  agree_on_ranks(*this, ranks);
  const int world = int(ranks.size());
  try {
    std::optional<Handed> made;
    if (rank() == ranks[0]) made = Handed{base::Segment::create(world)};
    Handed handed = hand_over(std::move(made), ranks[0], world, "a segment");
    node_.member.barrier();  // the maker's descriptor stays until all have opened it
    const auto mine = std::find(ranks.begin(), ranks.end(), rank());
    if (mine == ranks.end()) return nullptr;
    auto group = std::make_shared<ShmGroup>(std::move(handed.segment), int(mine - ranks.begin()),
                                            node_.member.timeout(), node_.whole_of(ranks));
    group->node_.member.set_stall_warning(node_.member.stall_warning());
    group->node_.member.set_compares_calls(node_.member.compares_calls());
    return group;
  } catch (const GroupAborted&) {
    throw;
  } catch (const std::exception& error) {
    node_.member.fail(error.what());
    throw;
  }
}

}  // namespace lockstep::comm
