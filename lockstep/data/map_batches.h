#pragma once

// Sets of a program's own, sample by sample: what Python calls a map-style dataset.

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <concepts>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/data/batch.h"

namespace lockstep::data {

/// A class with
///
///   std::int64_t size() const;
///   Batch get(std::int64_t i) const;    // one sample: tensors without a dimension for the batch
///
/// get() may give any class with tensors `data` and `target`, torch::data::Example<> for instance; the target may be
/// missing. Loader threads call it at the same time. It may use any operator, and it is a pure function of i: what it
/// draws from torch's generator would be other numbers in each run.
template <class Dataset>
concept MapStyle = requires(const Dataset& dataset, std::int64_t i) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  { dataset.get(i).data } -> std::convertible_to<at::Tensor>;
  { dataset.get(i).target } -> std::convertible_to<at::Tensor>;
};

/// Batches of such a set: its samples stacked along a new first dimension, as Python's default_collate.
template <MapStyle Dataset>
class MapBatches : public Batches {
 public:
  explicit MapBatches(Dataset dataset) : dataset_(std::move(dataset)) {}

  std::int64_t size() const override { return std::int64_t(dataset_.size()); }

  Batch make(std::uint64_t /*epoch*/, std::span<const std::int64_t> indices) const override {
    std::vector<at::Tensor> data, target;
    for (const std::int64_t index : indices) {
      auto sample = dataset_.get(index);
      data.push_back(std::move(sample.data));
      if (sample.target.defined()) target.push_back(std::move(sample.target));
    }
    return {at::stack(data), target.empty() ? at::Tensor() : at::stack(target)};
  }

 private:
  Dataset dataset_;
};

}  // namespace lockstep::data
