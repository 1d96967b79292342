#pragma once

// Pictures made of nothing, for measuring loaders and for trying things out without data.

#include "lockstep/data/picture_set.h"

namespace lockstep::data {

struct SyntheticOptions {
  std::int64_t size = 1000;  ///< samples; the defaults are FakeData's but for the classes' names
  Size image_size = {224, 224};
  int channels = 3;  ///< 1 grey, 3 RGB
  int classes = 10;  ///< called "0", "1", ...
  std::uint64_t seed = 0;
};

/// The counterpart of torchvision's FakeData: pixels are independent noise, equally distributed over 0 ... 255
/// (FakeData rounds normal numbers), labels are drawn equally often. Both are a pure function of (seed, index), the
/// same on every machine. Nothing is stored; a picture is made when asked for, at the speed at which memory is written,
/// so that a benchmark measures what comes after. Thread-safe.
class SyntheticPictures : public PictureSet {
 public:
  /// UsageError: a size, image size or number of classes below 1, channels other than 1 or 3.
  explicit SyntheticPictures(const SyntheticOptions& options = {});

  std::int64_t size() const override { return options_.size; }
  /// UsageError for an index outside the set.
  Sample get(std::int64_t index) const override;
  const std::vector<std::string>& classes() const override { return classes_; }

 private:
  SyntheticOptions options_;
  std::vector<std::string> classes_;
};

}  // namespace lockstep::data
