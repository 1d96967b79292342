#pragma once

// A set whose samples are numbers, to see which ones a loader gives.

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "lockstep/data/data_loader.h"

namespace lockstep::data {

using Numbers = std::vector<std::int64_t>;

// The target of a sample is its index, its datum the epoch.
class EpochAndIndex : public Batches {
 public:
  explicit EpochAndIndex(std::int64_t samples) : samples_(samples) {}
  std::int64_t size() const override { return samples_; }
  Batch make(std::uint64_t epoch, std::span<const std::int64_t> indices) const override {
    const auto count = std::int64_t(indices.size());
    Batch batch{at::full({count}, double(epoch)), at::empty({count}, at::kLong)};
    std::ranges::copy(indices, batch.target.mutable_data_ptr<std::int64_t>());
    return batch;
  }

 private:
  std::int64_t samples_;
};

inline std::shared_ptr<const Batches> samples(std::int64_t count) { return std::make_shared<EpochAndIndex>(count); }

inline Numbers samples_in(const Batch& batch) {
  const std::int64_t* first = batch.target.const_data_ptr<std::int64_t>();
  return {first, first + batch.target.size(0)};
}

inline std::vector<Numbers> pass(DataLoader& loader) {
  std::vector<Numbers> batches;
  for (auto& batch : loader) batches.push_back(samples_in(batch));
  return batches;
}

}  // namespace lockstep::data
