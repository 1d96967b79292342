#pragma once

// Batches: what a training step reads, and what makes them.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace lockstep::data {

struct Batch {
  at::Tensor data;    ///< of pictures: float or bfloat16 [B, channels, height, width]
  at::Tensor target;  ///< int64 [B], classes; other sets and soft targets may have other types and shapes
};

/// A set of samples that can be put together to batches. Derive from it to train on a set of your own, or write a
/// class that has samples (map_batches.h). Thread-safe: loader threads call make() at the same time. It may use any
/// operator, each of these threads computes alone.
class Batches {
 public:
  virtual ~Batches() = default;

  /// How many samples there are.
  virtual std::int64_t size() const = 0;

  /// The samples `indices` in that order; `epoch`, from 0, decides the augmentation where there is one. A
  /// pure function of its arguments. What is wrong with a sample is a UsageError that names it.
  virtual Batch make(std::uint64_t epoch, std::span<const std::int64_t> indices) const = 0;
};

}  // namespace lockstep::data
