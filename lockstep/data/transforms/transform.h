#pragma once

// What a transform is, where its randomness comes from, and how transforms are put in a row.

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/data/transforms/picture.h"

namespace lockstep::data {

/// What the augmentation of a sample is a function of: the same sample gets the same one whichever
/// worker, rank or restarted run prepares it.
struct SampleKey {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t index = 0;  ///< the sample's number in its set
};

/// The draws of the transform at `position` of a row, for one sample.
base::RandomStream transform_stream(const SampleKey& key, std::uint32_t position);

/// What the mixing of a batch is a function of. Each logical shard of a step's batch is mixed by itself, so that
/// the number of ranks does not show.
struct BatchKey {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;  ///< its number in the epoch
  std::uint32_t shard = 0;
};

/// The draws for one shard of a batch.
base::RandomStream batch_stream(const BatchKey& key);

/// True with this probability (in steps of 2^-24, as torch.rand).
inline bool happens(double probability, base::RandomStream& random) { return random.between(0, 1) < probability; }

/// One step of the preparation. Thread-safe: all that changes is the picture and the stream.
class Transform {
 public:
  virtual ~Transform() = default;
  virtual void apply(Picture& picture, base::RandomStream& random) const = 0;
};

/// Transforms in a row; each has a stream of its own, so what one draws does not move the others.
class Compose {
 public:
  /// Adds one to the end: Compose().then(RandomCrop({...})).then(RandomHorizontalFlip()).
  template <class T>
  Compose&& then(T transform) && {
    transforms_.push_back(std::make_unique<T>(std::move(transform)));
    return std::move(*this);
  }

  void apply(Picture& picture, const SampleKey& key) const;

  /// How many there are: the position of what comes after them.
  std::uint32_t size() const { return std::uint32_t(transforms_.size()); }

 private:
  std::vector<std::unique_ptr<const Transform>> transforms_;
};

}  // namespace lockstep::data
