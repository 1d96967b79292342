#include "lockstep/data/samplers/deal.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/samplers/sampler.h"

namespace lockstep::data {
namespace {

void check(std::int64_t size, const Share& share) {
  if (share.num_replicas < 1 || share.rank < 0 || share.rank >= share.num_replicas) {
    throw UsageError("distributed sampler: rank " + std::to_string(share.rank) + " is not in 0 ... " +
                     std::to_string(share.num_replicas - 1) + " (num_replicas " + std::to_string(share.num_replicas) +
                     ")");
  }
  if (size < 0) throw UsageError("distributed sampler: a set cannot have " + std::to_string(size) + " samples");
  if (share.consumed < 0 || share.consumed > size) {
    throw UsageError("distributed sampler: " + std::to_string(share.consumed) + " samples consumed of " +
                     std::to_string(size));
  }
}

}  // namespace

std::int64_t share_size(std::int64_t size, const Share& share) {
  check(size, share);
  const std::int64_t rest = size - share.consumed, replicas = share.num_replicas;
  switch (share.remainder) {
    case Remainder::drop:
      return rest / replicas;
    case Remainder::keep:
      return rest / replicas + (share.rank < rest % replicas);
    case Remainder::pad:
      break;
  }
  return rest / replicas + (rest % replicas != 0);
}

std::vector<std::int64_t> share_of(std::span<const std::int64_t> order, const Share& share) {
  const auto size = std::int64_t(order.size());
  std::vector<std::int64_t> mine(std::size_t(share_size(size, share)));
  std::int64_t place = share.consumed + share.rank;
  for (std::int64_t& entry : mine) {
    entry = order[std::size_t(place % size)];  // past the end: padding
    place += share.num_replicas;
  }
  return mine;
}

std::vector<std::int64_t> evaluation_indices(std::int64_t size, int num_replicas, int rank) {
  const Share share{.num_replicas = num_replicas, .rank = rank, .remainder = Remainder::keep};
  check(size, share);
  return share_of(SequentialSampler(size).order(0), share);
}

std::vector<std::vector<std::int64_t>> cut_into_batches(std::span<const std::int64_t> order, std::int64_t batch_size,
                                                        bool drop_last) {
  if (batch_size < 1) throw UsageError("batches of " + std::to_string(batch_size) + " samples, at least 1 expected");
  std::vector<std::vector<std::int64_t>> batches;
  while (!order.empty()) {
    const std::size_t count = std::min(order.size(), std::size_t(batch_size));
    if (drop_last && std::int64_t(count) < batch_size) break;
    batches.emplace_back(order.begin(), order.begin() + std::ptrdiff_t(count));
    order = order.subspan(count);
  }
  return batches;
}

}  // namespace lockstep::data
