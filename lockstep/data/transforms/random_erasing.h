#pragma once

// RandomErasing on the numbers of a batch, as torchvision's on a tensor after Normalize.

#include <optional>
#include <vector>

#include "lockstep/data/transforms/geometry.h"
#include "lockstep/data/transforms/normalize.h"

namespace lockstep::data {

struct RandomErasingOptions {
  double p = 0.5;
  Interval scale = {0.02, 0.33};    ///< of the erased area, as a part of the picture's
  Interval ratio = {0.3, 3.3};      ///< of its height to its width, uniform in its logarithm
  std::vector<double> value = {0};  ///< what is written, per channel or for all of them; empty: normal noise
};

/// Zhong et al., "Random Erasing Data Augmentation". Thread-safe.
class RandomErasing {
 public:
  /// UsageError unless 0 <= p <= 1, 0 <= scale.low <= scale.high <= 1,
  /// 0 < ratio.low <= ratio.high and there are no, one or three values.
  explicit RandomErasing(const RandomErasingOptions& options = {});

  /// The rectangle that torchvision would draw: none when ten tries do not fit inside.
  std::optional<CropBox> choose(Size image, base::RandomStream& random) const;

  /// Erases a part of the picture that Normalize wrote, or, as often as not, leaves it alone.
  void apply(const Slot& slot, base::RandomStream& random) const;

  /// Erases this part; `random` is for the noise.
  void erase(const Slot& slot, const CropBox& box, base::RandomStream& random) const;

 private:
  RandomErasingOptions options_;
};

}  // namespace lockstep::data
