#pragma once

// Tensors in memory that all ranks of a node have mapped.

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/base/segment.h"
#include "lockstep/comm/shm/staging.h"

namespace lockstep::comm {

/// Memory of one Group::shared_empty: a part for each rank. It is a memfd of its own, so the kernel frees it with
/// the last rank that has it mapped, however that rank ends.
struct Region {
  std::uint64_t id = 0;  ///< the same on all ranks, never 0
  base::Mapping mapping;
  std::size_t stride = 0;  ///< bytes from one rank's part to the next one's
  std::byte* part(int rank) const { return mapping.data() + std::size_t(rank) * stride; }
};

/// The regions of a group's rank. A region is known until its tensor is destroyed, by whatever
/// thread and whether or not the group still lives.
class SharedTensors {
 public:
  explicit SharedTensors(int rank) : rank_(rank), known_(std::make_shared<Known>()) {}

  /// Bytes from one rank's part to the next one's, for tensors of so many bytes.
  static std::size_t stride_for(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

  /// The rank's tensor in a region. The region is dropped with the tensor's memory.
  at::Tensor adopt(Region region, at::IntArrayRef sizes, at::ScalarType dtype);

  /// Where these bytes are; region 0 when not in one whole part of this rank.
  Place find(const std::byte* data, std::size_t bytes) const;

  /// What a peer calls `place`. The caller's own tensor is in that region.
  std::byte* peer_data(Place place, int peer) const;

 private:
  static constexpr std::size_t kPage = 4096;
  struct Known {
    std::mutex mutex;
    std::vector<std::shared_ptr<const Region>> regions;
  };

  int rank_;
  std::shared_ptr<Known> known_;
};

}  // namespace lockstep::comm
