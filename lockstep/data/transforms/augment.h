#pragma once

// Random colours and turns, and the policies made of them: ColorJitter, RandomRotation, AutoAugment,
// RandAugment, TrivialAugmentWide, with torchvision's tables, magnitudes and probabilities.

#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/transforms/affine.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

/// How far each property may go from what it is; 0: not at all.
struct ColorJitterOptions {
  double brightness = 0;  ///< factor between max(0, 1 − x) and 1 + x; so contrast and saturation
  double contrast = 0;
  double saturation = 0;
  double hue = 0;  ///< turned by −x to x of the circle, x at most 0.5
};

/// The adjustments by random factors, in random order.
class ColorJitter : public Transform {
 public:
  /// UsageError for a negative number or a hue above 0.5.
  explicit ColorJitter(const ColorJitterOptions& options);
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  ColorJitterOptions options_;
};

/// A rotation between −degrees and degrees.
class RandomRotation : public Transform {
 public:
  /// UsageError for negative degrees.
  explicit RandomRotation(double degrees, const WarpOptions& options = {}, bool expand = false);
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  double degrees_;
  WarpOptions options_;
  bool expand_;
};

/// The operations of the policies, in RandAugment's order; Invert is AutoAugment's alone.
enum class AugmentOp {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  auto_contrast,
  equalize,
  invert,
};
inline constexpr int kSharedOps = 14;  ///< those before invert

/// One operation; what the magnitude means is the operation's affair (torchvision's _apply_op).
Image augmented(const ImageView& image, AugmentOp op, double magnitude, const WarpOptions& options);

/// How strong an operation gets.
enum class AugmentSpace {
  standard,  ///< of AutoAugment and RandAugment
  wide,      ///< of TrivialAugmentWide
  mix,       ///< of AugMix
};

/// The magnitudes of an operation in `bins` (at least 2) steps for a picture of this size; none for one
/// that has no strength. is_signed(): half of the time they are taken negative.
std::vector<double> magnitudes(AugmentSpace space, AugmentOp op, int bins, Size size);
bool is_signed(AugmentOp op);

enum class AutoAugmentPolicy { imagenet, cifar10, svhn };

/// Cubuk et al., "AutoAugment: Learning Augmentation Strategies from Data": one of 25 pairs of operations.
class AutoAugment : public Transform {
 public:
  explicit AutoAugment(AutoAugmentPolicy policy = AutoAugmentPolicy::imagenet, const WarpOptions& options = {});
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  AutoAugmentPolicy policy_;
  WarpOptions options_;
};

struct RandAugmentOptions {
  int num_ops = 2;
  int magnitude = 9;  ///< which of the bins
  int num_magnitude_bins = 31;
  WarpOptions warp = {};
};

/// Cubuk et al., "RandAugment": some operations of one magnitude, each of them as likely.
class RandAugment : public Transform {
 public:
  /// UsageError unless num_ops >= 0, num_magnitude_bins >= 2 and 0 <= magnitude < num_magnitude_bins.
  explicit RandAugment(const RandAugmentOptions& options = {});
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  RandAugmentOptions options_;
};

/// Müller and Hutter, "TrivialAugment": one operation of a random magnitude.
class TrivialAugmentWide : public Transform {
 public:
  /// UsageError unless num_magnitude_bins >= 2.
  explicit TrivialAugmentWide(int num_magnitude_bins = 31, const WarpOptions& options = {});
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  int bins_;
  WarpOptions options_;
};

/// What AutoAugment does: a policy's pair of operations, for tests that give the choice.
struct PolicyStep {
  AugmentOp op;
  double probability;
  int magnitude;  ///< which of 10 bins; 0 for operations without strength
};
struct PolicyPair {
  PolicyStep first, second;
};
const std::vector<PolicyPair>& policy_pairs(AutoAugmentPolicy policy);

}  // namespace lockstep::data
