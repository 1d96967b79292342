#include "lockstep/data/samplers/shard_order.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/samplers/deal.h"

namespace lockstep::data {

ShardOrder::ShardOrder(std::shared_ptr<const Sampler> sampler, const base::Part& part, std::int64_t shard_batch,
                       bool drop_last)
    : sampler_(std::move(sampler)),
      part_(part),
      shard_batch_(shard_batch),
      drop_last_(drop_last),
      batches_(base::batches_per_epoch(sampler_->num_samples(), part.shards, shard_batch, drop_last)) {}

std::int64_t ShardOrder::first_batch(std::int64_t seen) const {
  return batches_ - base::batches_per_epoch(size() - seen, part_.shards, shard_batch_, drop_last_);
}

std::shared_ptr<const ShardOrder::Orders> ShardOrder::orders(std::int64_t epoch, std::int64_t seen) const {
  const std::lock_guard lock(mutex_);
  if (!orders_ || epoch != epoch_ || seen != seen_) {
    const std::vector<std::int64_t> whole = sampler_->order(std::uint64_t(epoch));
    if (std::int64_t(whole.size()) != sampler_->num_samples())
      throw UsageError("sampler: epoch " + std::to_string(epoch) + " has " + std::to_string(whole.size()) +
                       " samples, its num_samples() says " + std::to_string(sampler_->num_samples()));
    auto fresh = std::make_shared<Orders>();
    const base::ShardSpan span = part_.span();
    for (int shard = span.first; shard < span.last; ++shard)
      fresh->push_back(share_of(whole, {.num_replicas = part_.shards, .rank = shard, .consumed = seen}));
    orders_ = std::move(fresh);
    epoch_ = epoch;
    seen_ = seen;
  }
  return orders_;
}

std::vector<std::int64_t> ShardOrder::samples(std::int64_t epoch, std::int64_t batch, std::int64_t seen) const {
  const std::shared_ptr<const Orders> of_shards = orders(epoch, seen);
  std::vector<std::int64_t> found;
  for (const std::vector<std::int64_t>& order : *of_shards) {
    const std::int64_t first = (batch - first_batch(seen)) * shard_batch_;
    const std::int64_t last = std::min(first + shard_batch_, std::int64_t(order.size()));
    found.insert(found.end(), order.begin() + first, order.begin() + last);
  }
  return found;
}

}  // namespace lockstep::data
