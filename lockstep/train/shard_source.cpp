#include "lockstep/train/shard_source.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "lockstep/data/mixed_batch.h"
#include "lockstep/data/samplers/distributed.h"

namespace lockstep::train {
namespace {

// The shards' orders of the epoch asked for last; a run asks for epochs in order.
class EpochOrders {
 public:
  EpochOrders(std::int64_t samples, int shards, parallel::ShardSpan span, std::uint64_t seed) {
    for (int shard = span.first; shard < span.last; ++shard)
      samplers_.emplace_back(samples, shards, shard, data::DistributedSamplerOptions{.seed = seed});
  }

  using Orders = std::vector<std::vector<std::int64_t>>;
  std::shared_ptr<const Orders> of(std::int64_t epoch) {
    const std::lock_guard lock(mutex_);
    if (!orders_ || epoch != epoch_) {
      auto fresh = std::make_shared<Orders>();
      for (data::DistributedSampler& sampler : samplers_) {
        sampler.set_epoch(std::uint64_t(epoch));
        fresh->push_back(sampler.indices());
      }
      orders_ = std::move(fresh);
      epoch_ = epoch;
    }
    return orders_;
  }

 private:
  std::mutex mutex_;
  std::vector<data::DistributedSampler> samplers_;
  std::shared_ptr<const Orders> orders_;
  std::int64_t epoch_ = 0;
};

}  // namespace

StepPlace place_of_step(std::int64_t step, std::int64_t steps_per_epoch) {
  const std::int64_t index = step - 1;
  return {
      .epoch = index / steps_per_epoch, .batch = index % steps_per_epoch, .ends_epoch = step % steps_per_epoch == 0};
}

data::BatchSource shard_source(std::shared_ptr<const data::Batches> set, BatchPlan plan, parallel::ShardSpan span,
                               std::uint64_t seed) {
  auto orders = std::make_shared<EpochOrders>(set->size(), plan.shards, span, seed);
  const std::int64_t per_epoch = steps_per_epoch(plan, set->size());
  return [=, set = std::move(set)](std::int64_t step) {
    const StepPlace place = place_of_step(step, per_epoch);
    const auto epoch = orders->of(place.epoch);
    std::vector<std::int64_t> indices;
    for (const std::vector<std::int64_t>& order : *epoch) {
      const std::int64_t first = place.batch * plan.shard_batch;
      const std::int64_t last = std::min(first + plan.shard_batch, std::int64_t(order.size()));
      indices.insert(indices.end(), order.begin() + first, order.begin() + last);
    }
    return set->make(std::uint64_t(place.epoch), indices);
  };
}

data::BatchSource mixed_source(data::BatchSource source, Mixing mixing, parallel::ShardSpan span,
                               std::int64_t steps_per_epoch) {
  return [=, source = std::move(source), mixing = std::move(mixing)](std::int64_t step) {
    data::Batch batch = source(step);
    const StepPlace place = place_of_step(step, steps_per_epoch);
    const data::BatchKey key{.seed = mixing.seed,
                             .epoch = std::uint64_t(place.epoch),
                             .batch = std::uint64_t(place.batch),
                             .shard = std::uint32_t(span.first)};
    data::mix_batch(batch, *mixing.mix, mixing.classes, key, span.count());
    return batch;
  };
}

}  // namespace lockstep::train
