#pragma once

// What a transform is, where its randomness comes from, and how transforms are put in a row.

#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/data/transforms/picture.h"
#include "lockstep/data/transforms/placement.h"

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

/// UsageError naming `who` unless 0 <= p <= 1.
void require_probability(double p, const char* who);

/// One step of the preparation. Thread-safe: all that changes is the picture and the stream.
class Transform {
 public:
  virtual ~Transform() = default;
  virtual void apply(Picture& picture, base::RandomStream& random) const = 0;

  /// Itself, where it only places pictures.
  virtual const Placer* placer() const { return nullptr; }
};

/// A transform of any class as a value, for lists: RandomOrder({ColorJitter({...}), GaussianBlur(5)}). Copies share
/// the transform, which nobody changes. Thread-safe.
class AnyTransform {
 public:
  template <std::derived_from<Transform> T>
  AnyTransform(T transform)  // NOLINT(google-explicit-constructor): so that a list may be written in braces
      : transform_(std::make_shared<const T>(std::move(transform))) {}

  void apply(Picture& picture, base::RandomStream& random) const { transform_->apply(picture, random); }
  const Placer* placer() const { return transform_->placer(); }

 private:
  std::shared_ptr<const Transform> transform_;
};

class BatchMix;
class MultiCrop;
class Normalize;
class RandomErasing;

/// Transforms in a row; each has a stream of its own, so what one draws does not move the others.
class Compose {
 public:
  /// Adds one to the end: Compose().then(RandomCrop(32, {.padding = 4})).then(RandomHorizontalFlip()), or one after
  /// the other to a Compose that has a name.
  template <class T>
  Compose&& then(T transform) && {
    add(std::move(transform));
    return std::move(*this);
  }
  template <class T>
  Compose& then(T transform) & {
    add(std::move(transform));
    return *this;
  }

  void apply(Picture& picture, const SampleKey& key) const;

  /// Whether all that they do is to place pictures: mirror them, and crop them once.
  bool only_places() const;

  /// Where only_places(): what apply() does to a picture of this size.
  Placement place(Size size, const SampleKey& key) const;

  /// How many there are: the position of what comes after them.
  std::uint32_t size() const { return std::uint32_t(transforms_.size()); }

 private:
  template <class T>
  void add(T transform) {
    constexpr bool kNormalize = std::is_same_v<T, Normalize>, kErasing = std::is_same_v<T, RandomErasing>;
    constexpr bool kCrops = std::is_base_of_v<MultiCrop, T>, kMix = std::is_base_of_v<BatchMix, T>;
    constexpr bool kPictures = std::is_convertible_v<T, AnyTransform>;
    static_assert(!kNormalize,
                  "Compose::then(Normalize): it comes last and writes the batch; give its options to PictureBatches, "
                  "{.normalize = {.mean = ..., .std = ...}}");
    static_assert(!kErasing,
                  "Compose::then(RandomErasing): it works on normalised numbers; give its options to PictureBatches, "
                  "{.erasing = RandomErasingOptions{...}}");
    static_assert(!kCrops,
                  "Compose::then(FiveCrop or TenCrop): it makes several pictures of one and comes last; give it to "
                  "PictureBatches, {.crops = FiveCrop(224)}");
    static_assert(!kMix,
                  "Compose::then(MixUp or CutMix): it mixes the samples of a batch; give it to mix_batch() with what "
                  "PictureBatches::make() returned");
    static_assert(kPictures || kNormalize || kErasing || kCrops || kMix,
                  "Compose::then: a transform of pictures derives from lockstep::data::Transform and can be copied or "
                  "moved");
    if constexpr (kPictures) transforms_.emplace_back(std::move(transform));
  }

  std::vector<AnyTransform> transforms_;
};

}  // namespace lockstep::data
