#pragma once

// The group of one node's ranks, processes or threads, over the shared segment. Its world is the
// node: a rank is a seat.

#include <optional>

#include "lockstep/comm/node_group.h"
#include "lockstep/comm/shm/shared_tensors.h"
#include "lockstep/comm/shm/staging.h"

namespace lockstep::comm {

/// By what size a collective goes which way. Bytes; the same on all ranks.
struct Sizes {
  /// So much goes through the staging areas at once, wherever the tensor lies: one meeting, after which every rank
  /// reads what all have written. More takes two meetings, and each rank does its part for all. At least what a post
  /// holds.
  std::size_t at_once = std::size_t(2) << 10;
  std::size_t chunk = Staging::kHalf;  ///< at most a half
};

class ShmGroup final : public NodeGroup {
 public:
  /// Takes seat `rank` of the segment. Threads of one process each open the segment for
  /// themselves (base::Segment::open(path)) and make their own group.
  ShmGroup(base::Segment segment, int rank, std::chrono::milliseconds timeout = base::kDefaultTimeout,
           base::Whole whole = {});

  void all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  void broadcast(const at::Tensor& tensor, int root) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void barrier() override;
  void all_to_all(const at::Tensor& output, const at::Tensor& input) override;
  void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) override;
  void carry(Messages& messages) override;
  void exchange_bytes(const CollectiveNote& note, std::size_t elements, std::size_t width, const PutChunk& put,
                      const TakeChunk& take) override;
  std::shared_ptr<NodeGroup> new_node_group(const std::vector<int>& ranks) override;
  at::Tensor shared_empty(at::IntArrayRef sizes, at::ScalarType dtype) override;
  base::Node* shared_node() override { return &node_; }

  /// For measurements: the default is for all machines. Collective, in that all ranks call it between the same two
  /// collectives.
  void set_sizes(Sizes sizes) { sizes_ = sizes; }

 private:
  /// What a collective has to move: `elements` of `width` bytes from each rank.
  struct Load {
    CollectiveNote note;
    std::size_t elements = 0;
    std::size_t width = 0;
    const std::byte* data = nullptr;  ///< of this rank, where it could be in shared memory
    std::size_t bytes() const { return elements * width; }
  };
  /// The way of a collective's data: in the posts; shared tensors, in place; a chunk at a time.
  enum class Route { posts, direct, staged };

  /// Says what this rank is calling and waits until all have. fill(payload) puts something small along.
  template <class Fill>
  void meet(const CollectiveNote& note, Fill&& fill);
  void check_notes(const CollectiveNote& mine, int which);
  [[noreturn]] void refuse_other_barrier(const CollectiveNote& mine, int peer);

  /// The first meeting of a collective, after which all know its way. by_rank_ then points to all ranks' posts or
  /// shared tensors; when staged, what write(part, first, n) of each rank has put into the first chunk is there.
  template <class Write>
  Route begin(const Load& load, Write&& write);

  /// Gives read(by_rank_, first, n) what write(part, first, n) of each rank has put there, a chunk at a time;
  /// or, when all ranks' data is in shared memory, direct(by_rank_) the data itself, which no rank leaves before
  /// all have read and written what they will.
  template <class Write, class Read, class Direct>
  void exchange(const Load& load, Write&& write, Read&& read, Direct&& direct);
  template <class Write, class Read>
  void exchange_chunks(const Load& load, Write&& write, Read&& read);

  /// The same for work that is shared out: work(by_rank_, first, n) of each rank changes its part of all ranks'
  /// halves, take(half, first, n) sees what all have made of this rank's own.
  template <class Write, class Work, class Take>
  void work_on_chunks(const Load& load, Write&& write, Work&& work, Take&& take);
  template <class Reduce>
  void reduce_in_parts(const Load& load, std::byte* data, Reduce&& reduce);
  void point_to_halves(int half);
  /// all_gather of a contiguous tensor into contiguous ones, by rank.
  void gather(const std::vector<at::Tensor>& outputs, const at::Tensor& dense);
  std::size_t chunk_of(const Load& load) const { return sizes_.chunk / load.width; }  ///< elements
  Place place_of(const Load& load) const;
  Place place_at(int peer) const;
  Region make_region(std::size_t bytes);
  /// Gives all ranks the segment that rank `maker` has made for `world` ranks, and a place in it. UsageError on all
  /// ranks when it has made none.
  struct Handed {
    base::Segment segment;
    std::size_t offset = 0;
  };
  Handed hand_over(std::optional<Handed> made, int maker, int world, const std::string& what);

  base::Node node_;
  Staging staging_;
  SharedTensors tensors_;
  Sizes sizes_;
  int half_ = 0;                     ///< the half the next chunk uses
  int post_ = 0;                     ///< the post of the last meeting
  std::uint64_t meetings_ = 0;       ///< collectives called so far
  std::uint64_t regions_ = 0;        ///< shared tensors made so far
  std::vector<std::byte*> by_rank_;  ///< scratch: the parts of all ranks
};

}  // namespace lockstep::comm
