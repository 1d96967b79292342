#pragma once

// The orders of Python's torch.utils.data.RandomSampler and WeightedRandomSampler, index for index.

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/data/samplers/sampler.h"

namespace lockstep::data {

struct RandomSamplerOptions {
  bool replacement = false;                 ///< each entry drawn from the whole set
  std::optional<std::int64_t> num_samples;  ///< entries per epoch; as many as the set has. More begin a new permutation
  std::uint64_t seed = 0;                   ///< equal on all ranks
};

/// What Python's RandomSampler gives with a generator of the seed `seed + epoch`: without replacement
/// torch.randperm.
class RandomSampler : public Sampler {
 public:
  /// `size`: samples in the set. UsageError when it is negative, or num_samples below 1, or the set empty while
  /// entries are wanted.
  explicit RandomSampler(std::int64_t size, const RandomSamplerOptions& options = {});

  std::int64_t num_samples() const override { return num_samples_; }
  std::vector<std::int64_t> order(std::uint64_t epoch) const override;

 private:
  std::int64_t size_;
  RandomSamplerOptions options_;
  std::int64_t num_samples_;
};

struct WeightedRandomSamplerOptions {
  std::int64_t num_samples = 0;  ///< entries per epoch, at least 1
  bool replacement = true;
  std::uint64_t seed = 0;  ///< equal on all ranks
};

/// Sample i with a probability proportional to weights[i]: torch.multinomial with a generator of the seed
/// `seed + epoch`, as Python's WeightedRandomSampler has it.
class WeightedRandomSampler : public Sampler {
 public:
  /// UsageError for a weight that is negative or not finite, more than 2^24 weights (torch.multinomial's
  /// limit), num_samples below 1, and without replacement more than there are weights above 0.
  WeightedRandomSampler(std::vector<double> weights, const WeightedRandomSamplerOptions& options);

  std::int64_t num_samples() const override { return options_.num_samples; }
  std::vector<std::int64_t> order(std::uint64_t epoch) const override;

 private:
  std::vector<double> weights_;
  WeightedRandomSamplerOptions options_;
};

}  // namespace lockstep::data
