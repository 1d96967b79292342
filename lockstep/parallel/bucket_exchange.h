#pragma once

// How the ranks make one gradient of theirs, a bucket at a time.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::parallel {

/// The parameters of each bucket, of one dtype.
using Buckets = std::vector<std::vector<at::Tensor>>;

class BucketExchange {
 public:
  virtual ~BucketExchange() = default;

  /// Collective, in the order of the buckets: the .grad() of its parameters become those of all ranks, now or in
  /// finish(). A mean over the ranks is multiplied by `correction`.
  virtual void send(std::size_t bucket, double correction) = 0;
  /// At the end of a backward. Returns whether anything was left to be done.
  virtual bool finish() { return false; }
  /// What a backward that ended by an exception has left.
  virtual void forget() {}
};

/// Of a rank alone, whose gradients are the mean.
class NoExchange final : public BucketExchange {
 public:
  void send(std::size_t /*bucket*/, double /*correction*/) override {}
};

/// By their mean, in memory that the ranks share, where the all-reduce copies nothing.
class MeanExchange final : public BucketExchange {
 public:
  MeanExchange(Buckets buckets, std::shared_ptr<comm::Group> group)
      : buckets_(std::move(buckets)), group_(std::move(group)) {}

  void send(std::size_t bucket, double correction) override;

 private:
  Buckets buckets_;
  std::shared_ptr<comm::Group> group_;
  at::Tensor together_;  ///< through which one bucket after the other goes; from the first on
};

/// By their mean, in memory that the ranks share and that .grad() are parts of from then on.
class ViewExchange final : public BucketExchange {
 public:
  ViewExchange(Buckets buckets, std::shared_ptr<comm::Group> group)
      : buckets_(std::move(buckets)), group_(std::move(group)) {}

  void send(std::size_t bucket, double correction) override;

 private:
  void take_memory();

  Buckets buckets_;
  std::shared_ptr<comm::Group> group_;
  std::vector<at::Tensor> memory_;  ///< of each bucket; from the first on
  Buckets views_;                   ///< by parameter, of its shape and strides
};

/// Memory for each bucket, one-dimensional, of its dtype, in one tensor: shared by the ranks where the parameters are
/// the CPU's, else on their device. Collective.
std::vector<at::Tensor> memory_for(const Buckets& buckets, comm::Group& group);

/// The parts of this memory, by parameter, of its shape and strides, one behind the other.
Buckets places_in(const std::vector<at::Tensor>& memory, const Buckets& buckets);

}  // namespace lockstep::parallel
