#pragma once

// Repeated augmentation (Hoffer et al., "Augment your batch", 2020): the order of the sampler RASampler in
// torchvision's reference trainer.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/data/samplers/sampler.h"

namespace lockstep::data {

struct RepeatedSamplerOptions {
  std::int64_t repetitions = 3;             ///< of each sample, at least 1
  std::optional<std::int64_t> num_samples;  ///< entries per epoch; as many as the other order has
};

/// Each entry of another order several times in a row, of that as many entries as one epoch has: an epoch is as long as
/// before and sees a part of the set, another part each time. Dealt out to at least as many shards as repetitions,
/// those of a sample come into different ones; in the same step unless it ends between them.
///
/// Repetition r of sample i of a set of `size` is the entry i + r * size, which PictureBatches augments in a way of its
/// own. torchvision rounds the length of an epoch down to whole 256s, which leaves smaller sets none: that is
/// num_samples.
class RepeatedSampler : public Sampler {
 public:
  /// UsageError when `order` is null, repetitions is below 1 or num_samples not in 0 … entries * repetitions.
  RepeatedSampler(std::shared_ptr<const Sampler> order, std::int64_t size, const RepeatedSamplerOptions& options = {});

  std::int64_t num_samples() const override { return num_samples_; }
  std::vector<std::int64_t> order(std::uint64_t epoch) const override;

 private:
  std::shared_ptr<const Sampler> order_;
  std::int64_t size_;
  std::int64_t repetitions_;
  std::int64_t num_samples_;
};

}  // namespace lockstep::data
