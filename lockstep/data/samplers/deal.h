#pragma once

// Dealing an order out to ranks, and cutting it into batches. Pure functions.

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// What becomes of the entries that cannot be dealt out evenly.
enum class Remainder {
  pad,   ///< the order begins again, as often as needed: all ranks get equally many
  drop,  ///< they are left out: all ranks get equally many
  keep,  ///< the first ranks get one more
};

/// One rank's part of an order.
struct Share {
  int num_replicas = 1;
  int rank = 0;
  Remainder remainder = Remainder::pad;
  std::int64_t consumed = 0;  ///< leading entries that were dealt out before, perhaps to another number of ranks
};

/// How many entries of `size` the share has. UsageError when rank is not in 0 … num_replicas−1 or consumed not
/// in 0 … size.
std::int64_t share_size(std::int64_t size, const Share& share);

/// Every num_replicas-th entry, from entry consumed + rank on.
std::vector<std::int64_t> share_of(std::span<const std::int64_t> order, const Share& share);

/// For exact evaluation: rank, rank + num_replicas, ... below `size`. Each sample is in one rank's share, once,
/// where DistributedSampler would evaluate some twice; ranks may differ by one sample, and some have none.
std::vector<std::int64_t> evaluation_indices(std::int64_t size, int num_replicas, int rank);

/// What Python's BatchSampler makes of an order; the last batch may be smaller, or is left out. UsageError when
/// batch_size is below 1.
std::vector<std::vector<std::int64_t>> cut_into_batches(std::span<const std::int64_t> order, std::int64_t batch_size,
                                                        bool drop_last = false);

}  // namespace lockstep::data
