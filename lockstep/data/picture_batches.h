#pragma once

// From the pictures of a set to the tensors of a training step.

#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/data/dataset.h"
#include "lockstep/data/picture_set.h"
#include "lockstep/data/transforms/normalize.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

/// Reads, transforms and normalises pictures straight into batch tensors. Thread-safe; plain loops, no
/// ATen kernels (see make_batch of dataset.h).
class PictureBatches {
 public:
  /// `seed` is that of the augmentation. The set is shared: batches do not refer to it.
  PictureBatches(std::shared_ptr<const PictureSet> set, Compose transforms, const NormalizeOptions& normalize = {},
                 std::uint64_t seed = 0);

  /// The samples `indices` of the set, augmented as in `epoch`: data [B, channels, height, width] of the
  /// type and layout of NormalizeOptions, and labels. No samples give an empty batch of shape [0].
  /// UsageError, naming the sample, for what is wrong with it; also when two samples differ in size or
  /// channels after the transforms.
  Batch make(std::uint64_t epoch, std::span<const std::int64_t> indices) const;

  const PictureSet& set() const { return *set_; }

 private:
  Sample prepared(std::uint64_t epoch, std::int64_t index) const;
  at::Tensor empty_like(const Picture& first, std::int64_t count) const;

  std::shared_ptr<const PictureSet> set_;
  Compose transforms_;
  NormalizeOptions options_;
  Normalize normalize_;
  std::uint64_t seed_;
};

}  // namespace lockstep::data
