#pragma once

// Which samples a rank reads at each step: the orders of its shards, one behind the other.

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/base/part.h"
#include "lockstep/data/samplers/sampler.h"

namespace lockstep::data {

/// An epoch's order is dealt out to the shards as DistributedSampler deals it out to replicas, and each shard takes
/// `shard_batch` of its samples at a time; with `drop_last` only while every shard has as many that are no repetition.
/// A pure function of epoch and batch, whoever computes a shard. Thread-safe.
class ShardOrder {
 public:
  ShardOrder(std::shared_ptr<const Sampler> sampler, const base::Part& part, std::int64_t shard_batch, bool drop_last);

  /// Batches in an epoch: base::batches_per_epoch().
  std::int64_t batches() const { return batches_; }
  /// Samples in an epoch's order.
  std::int64_t size() const { return sampler_->num_samples(); }

  /// Of an epoch whose first `seen` samples were dealt out in batches of another kind: its last batches, which hold the
  /// rest, begin with this one. 0 where nothing was seen; batches() where nothing is left that makes one.
  std::int64_t first_batch(std::int64_t seen) const;

  /// The samples of batch `batch` of `epoch`, both from 0; equally many of each shard. `seen` as above, and `batch` not
  /// before first_batch(seen): the rest is dealt out as an epoch of its own would be.
  std::vector<std::int64_t> samples(std::int64_t epoch, std::int64_t batch, std::int64_t seen = 0) const;

 private:
  using Orders = std::vector<std::vector<std::int64_t>>;  // of the rank's shards

  std::shared_ptr<const Orders> orders(std::int64_t epoch, std::int64_t seen) const;

  const std::shared_ptr<const Sampler> sampler_;
  const base::Part part_;
  const std::int64_t shard_batch_;
  const bool drop_last_;
  const std::int64_t batches_;

  mutable std::mutex mutex_;  // of what follows: the epoch asked for last, since a run asks for epochs in order
  mutable std::int64_t epoch_ = 0;
  mutable std::int64_t seen_ = 0;
  mutable std::shared_ptr<const Orders> orders_;
};

}  // namespace lockstep::data
