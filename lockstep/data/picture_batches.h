#pragma once

// From the pictures of a set to the tensors of a training step.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/data/batch_memory.h"
#include "lockstep/data/picture_set.h"
#include "lockstep/data/transforms/multi_crop.h"
#include "lockstep/data/transforms/normalize.h"
#include "lockstep/data/transforms/random_erasing.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

struct PictureBatchOptions {
  NormalizeOptions normalize = {};
  std::optional<RandomErasingOptions> erasing = {};
  std::optional<MultiCrop> crops = {};  ///< .crops = FiveCrop(224): several parts of each picture
  std::uint64_t seed = 0;               ///< of the augmentation
  std::int64_t repetitions = 1;         ///< of a RepeatedSampler: how often a sample may be augmented in an epoch, >= 1
  /// Pictures are written into page-locked memory, for a DataLoader with .device, whom it saves a pass over the batch.
  /// For a process with a device.
  bool pin_memory = false;
};

/// Reads, transforms and normalises pictures straight into batch tensors.
class PictureBatches : public Batches {
 public:
  /// UsageError as of Normalize and RandomErasing, which has no meaning for uint8. Batches do not refer to the set.
  PictureBatches(std::shared_ptr<const PictureSet> set, Compose transforms, const PictureBatchOptions& options = {});

  std::int64_t size() const override { return set_->size(); }

  /// The samples `indices` of the set, where i + r * size() is repetition r of sample i, augmented as in `epoch`: data
  /// [B, channels, height, width] of the type and layout of NormalizeOptions, and labels; with crops [B, crops,
  /// channels, height, width], over whose outputs an evaluation averages. No samples give an empty batch of shape [0].
  /// UsageError, naming the sample, for what is wrong with it; also when two samples differ in size or
  /// channels after the transforms.
  Batch make(std::uint64_t epoch, std::span<const std::int64_t> indices) const override;

  const PictureSet& set() const { return *set_; }

 private:
  // A sample as the batch takes it: one picture, or its crops, all of one shape.
  struct Views {
    std::vector<Picture> pictures;
    std::int64_t label;
  };

  SampleKey key(std::uint64_t epoch, std::int64_t index) const;
  std::int64_t sample_of(std::int64_t index) const;
  std::string name_of(std::int64_t index) const;
  std::string told(std::int64_t index, const std::string& error) const;
  template <class Prepare>
  auto named(std::int64_t index, Prepare&& prepare) const;
  Views prepared(const SampleKey& key) const;
  Batch made_of_samples(std::uint64_t epoch, std::span<const std::int64_t> indices) const;
  Batch placed(std::uint64_t epoch, std::span<const std::int64_t> indices) const;
  void write(const Views& sample, const SampleKey& key, char* place) const;
  at::Tensor empty(std::int64_t count, int channels, Size size) const;

  std::shared_ptr<const PictureSet> set_;
  Compose transforms_;
  PictureBatchOptions options_;
  Normalize normalize_;
  std::optional<RandomErasing> erasing_;
  const MemoryPictures* stored_;  // not null: pictures of it are only placed
  BatchMemory memory_;
};

}  // namespace lockstep::data
