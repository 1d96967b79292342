#pragma once

// Sets of a program's own, sample by sample: what Python calls a map-style dataset.

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/data/batch.h"

namespace lockstep::data {

namespace detail {

template <class Dataset>
concept HasSamples = requires(const Dataset& dataset, std::int64_t i) {
  dataset.get(i);
};

template <class Dataset>
concept HasSamplesOfEpochs = requires(const Dataset& dataset, std::int64_t i, std::uint64_t epoch) {
  dataset.get(i, epoch);
};

template <class Dataset>
requires(HasSamples<Dataset> || HasSamplesOfEpochs<Dataset>) auto sample_of(const Dataset& dataset, std::int64_t i,
                                                                            std::uint64_t epoch) {
  if constexpr (HasSamplesOfEpochs<Dataset>) {
    return dataset.get(i, epoch);
  } else {
    return dataset.get(i);
  }
}

}  // namespace detail

/// A class with
///
///   std::int64_t size() const;
///   Batch get(std::int64_t i) const;    // one sample: tensors without a dimension for the batch
///
/// or, when samples are augmented, another one in each epoch, counted from 0:
///
///   Batch get(std::int64_t i, std::uint64_t epoch) const;
///
/// get() may give any class with tensors `data` and `target`, torch::data::Example<> for instance; the target may be
/// missing. Loader threads call it at the same time. It may use any operator, and it is a pure function of its
/// arguments: what it draws from torch's generator would be other numbers in each run, transform_stream() is for that.
template <class Dataset>
concept MapStyle = requires(const Dataset& dataset, std::int64_t i, std::uint64_t epoch) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  { detail::sample_of(dataset, i, epoch).data } -> std::convertible_to<at::Tensor>;
  { detail::sample_of(dataset, i, epoch).target } -> std::convertible_to<at::Tensor>;
};

namespace detail {

/// Samples that become a batch.
class Stack {
 public:
  /// Of a set of `size` samples.
  explicit Stack(std::int64_t size) : size_(size) {}

  /// The sample that get() makes.
  void add(std::int64_t index, const std::function<Batch()>& get);

  Batch batch() const;

 private:
  std::int64_t size_;
  std::int64_t first_ = 0;  ///< the sample to which the others are compared
  std::vector<at::Tensor> data_, target_;
};

}  // namespace detail

/// Batches of such a set: its samples stacked along a new first dimension, as Python's default_collate.
template <MapStyle Dataset>
class MapBatches : public Batches {
 public:
  explicit MapBatches(Dataset dataset) : dataset_(std::move(dataset)) {}

  std::int64_t size() const override { return std::int64_t(dataset_.size()); }

  /// UsageError that names the sample: an index outside the set, one that is not like the first of the batch, and what
  /// get() throws.
  Batch make(std::uint64_t epoch, std::span<const std::int64_t> indices) const override {
    detail::Stack stack(size());
    for (const std::int64_t index : indices) {
      stack.add(index, [&] {
        auto sample = detail::sample_of(dataset_, index, epoch);
        return Batch{std::move(sample.data), std::move(sample.target)};
      });
    }
    return stack.batch();
  }

 private:
  Dataset dataset_;
};

}  // namespace lockstep::data
