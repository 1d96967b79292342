#pragma once

// The group of one node's ranks, processes or threads, over the shared segment.

#include "lockstep/comm/group.h"
#include "lockstep/comm/shm/staging.h"

namespace lockstep::comm {

class ShmGroup final : public Group {
 public:
  /// Takes seat `rank` of the segment. Threads of one process each open the segment for
  /// themselves (base::Segment::open(path)) and make their own group.
  ShmGroup(base::Segment segment, int rank, std::chrono::milliseconds timeout = base::kDefaultTimeout);

  int rank() const override { return node_.member.rank(); }
  int size() const override { return node_.member.size(); }
  void all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  void broadcast(const at::Tensor& tensor, int root) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void barrier() override;
  base::Node& node() override { return node_; }

 private:
  /// Moves `elements` of `element_bytes` each through the halves, a chunk at a time: write(half,
  /// first, n) puts this rank's part in (may do nothing), then, all parts being there, read(halves
  /// by rank, first, n) takes the result out.
  template <class Write, class Read>
  void through_staging(CollectiveNote note, std::size_t element_bytes, Write&& write, Read&& read);
  void check_notes(const CollectiveNote& mine, int which);

  base::Node node_;
  Staging staging_;
  int half_ = 0;                           ///< the half the next chunk uses
  std::uint64_t sequence_ = 0;             ///< collectives called so far
  std::vector<const std::byte*> by_rank_;  ///< scratch: the halves of all ranks
};

}  // namespace lockstep::comm
