#pragma once

// MixUp and CutMix on a batch, with the numbers of torchvision.transforms.v2: each sample is mixed with the one
// before it, the first with the last, and so are the labels. Plain loops, no ATen kernels.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/data/transforms/geometry.h"
#include "lockstep/data/transforms/normalize.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

/// Samples one behind the other, as a batch holds them.
struct Slots {
  Slot first;
  std::int64_t count = 0;
};

/// A draw of Beta(alpha, alpha), alpha > 0, a float32 above 0 and below 1 as torch.distributions.Beta gives.
double draw_beta(double alpha, base::RandomStream& random);

/// lambda * the sample + (1 − lambda) * the one before it, in place, with torch's roundings.
void mix_up(const Slots& samples, double lambda);

/// What CutMix takes from the sample before: a rectangle around (row, column) of the share 1 − lambda of the
/// picture, cut off at its edges; may be empty.
CropBox cut_box(Size image, double lambda, int row, int column);

/// The share of the picture outside of the box.
double share_outside(Size image, const CropBox& box);

/// Copies the box of the sample before into each sample, in place.
void cut_mix(const Slots& samples, const CropBox& box);

/// float32 [labels, classes]: lambda at the sample's class, 1 − lambda at that of the one before it; together
/// where the two are equal. Labels are in 0 … classes−1.
void mix_labels(std::span<const std::int64_t> labels, double lambda, std::int64_t classes, float* targets);

/// One way of mixing. Thread-safe.
class BatchMix {
 public:
  virtual ~BatchMix() = default;

  /// Mixes the samples in place, and returns the lambda for mix_labels().
  virtual double apply(const Slots& samples, base::RandomStream& random) const = 0;
};

class MixUp : public BatchMix {
 public:
  /// UsageError unless alpha is above 0 and finite.
  explicit MixUp(double alpha = 1);
  double apply(const Slots& samples, base::RandomStream& random) const override;

 private:
  double alpha_;
};

class CutMix : public BatchMix {
 public:
  /// UsageError unless alpha is above 0 and finite.
  explicit CutMix(double alpha = 1);
  double apply(const Slots& samples, base::RandomStream& random) const override;

 private:
  double alpha_;
};

/// One of several for each batch, each as likely.
class MixChoice : public BatchMix {
 public:
  /// UsageError when there is none.
  explicit MixChoice(std::vector<std::shared_ptr<const BatchMix>> choices);
  double apply(const Slots& samples, base::RandomStream& random) const override;

 private:
  std::vector<std::shared_ptr<const BatchMix>> choices_;
};

/// What the flags --mixup-alpha and --cutmix-alpha of torchvision's reference trainer mean: 0 is without, both
/// above 0 is one of the two for each batch. Empty when both are 0.
std::shared_ptr<const BatchMix> mixup_cutmix(double mixup_alpha, double cutmix_alpha);

}  // namespace lockstep::data
