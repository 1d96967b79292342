#pragma once

// A set in slices: samples that follow each other, each slice for one shard.

#include <cstdint>
#include <vector>

#include "lockstep/data/samplers/sampler.h"

namespace lockstep::data {

struct SlicedSamplerOptions {
  std::int64_t slices = 1;  ///< at least 1; as many as there are shards
  std::uint64_t seed = 0;   ///< equal on all ranks
};

/// Shard s takes the samples of slice s alone, in an order that is random anew in each epoch: what a rank does that
/// reads its part of a file and no more. All slices have ceil(size / slices) samples: where that does not divide,
/// neighbours share some (rows_of(), Remainder::pad). For entries that are dealt out one by one (deal.h).
class SlicedSampler : public Sampler {
 public:
  /// `size`: samples in the set. UsageError when it is less than the slices, or those are below 1.
  SlicedSampler(std::int64_t size, const SlicedSamplerOptions& options);

  std::int64_t num_samples() const override;
  std::vector<std::int64_t> order(std::uint64_t epoch) const override;

 private:
  std::int64_t size_;
  SlicedSamplerOptions options_;
};

}  // namespace lockstep::data
