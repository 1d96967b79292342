#pragma once

// Image sets in memory, and how samples become a batch.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace lockstep::data {

/// Pictures with their classes. Copies share the pixels; read-only after construction, so
/// any number of threads may use one.
struct ImageSet {
  at::Tensor images;  ///< uint8 [N, channels, height, width], contiguous
  at::Tensor labels;  ///< int64 [N], contiguous, each in 0 … classes−1
  int classes = 0;

  std::int64_t size() const { return labels.size(0); }
};

/// What a training step reads.
struct Batch {
  at::Tensor data;    ///< float [B, channels, height, width]: pixel / 255, as torchvision's ToTensor
  at::Tensor target;  ///< int64 [B]
};

/// The samples `indices` of `set`, in that order. UsageError for an index outside the set.
/// Plain loops, no ATen kernels: safe in a loader thread, where a kernel would start a pool
/// of OpenMP threads of its own. Thread-safe.
Batch make_batch(const ImageSet& set, std::span<const std::int64_t> indices);

}  // namespace lockstep::data
