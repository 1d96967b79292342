#include "lockstep/data/transforms/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/color.h"

namespace lockstep::data {
namespace {

Image sheared(const ImageView& image, double x, double y, const WarpOptions& options) {
  const auto degrees = [](double slope) { return std::atan(slope) * (180 / std::numbers::pi); };
  return warp(image, image.size(), affine_matrix({.shear = {degrees(x), degrees(y)}}), options);
}

Image translated(const ImageView& image, double x, double y, const WarpOptions& options) {
  const AffineOptions shift{.center = {image.width * 0.5, image.height * 0.5},
                            .translate = {std::trunc(x), std::trunc(y)}};
  return warp(image, image.size(), affine_matrix(shift), options);
}

// torch.linspace in float: from both ends, so that both are met.
std::vector<double> evenly(double first, double last, int bins) {
  const float start = float(first), end = float(last), step = (end - start) / float(bins - 1);
  std::vector<double> all;
  all.reserve(std::size_t(bins));
  for (int i = 0; i < bins; ++i)
    all.push_back(i < bins / 2 ? start + step * float(i) : end - step * float(bins - 1 - i));
  return all;
}

// From `most` bits down to most − `fewer`.
std::vector<double> bits(int most, int fewer, int bins) {
  std::vector<double> all;
  all.reserve(std::size_t(bins));
  for (int i = 0; i < bins; ++i) all.push_back(most - std::nearbyint(float(i) / float(double(bins - 1) / fewer)));
  return all;
}

void require_bins(int bins, const char* who) {
  if (bins < 2) throw UsageError(std::string(who) + ": " + std::to_string(bins) + " bins, at least 2 expected");
}

double with_sign(double magnitude, AugmentOp op, base::RandomStream& random) {
  return is_signed(op) && random.below(2) ? -magnitude : magnitude;
}

}  // namespace

Image augmented(const ImageView& image, AugmentOp op, double magnitude, const WarpOptions& options) {
  switch (op) {
    case AugmentOp::identity:
      return copy_of(image);
    case AugmentOp::shear_x:
      return sheared(image, magnitude, 0, options);
    case AugmentOp::shear_y:
      return sheared(image, 0, magnitude, options);
    case AugmentOp::translate_x:
      return translated(image, magnitude, 0, options);
    case AugmentOp::translate_y:
      return translated(image, 0, magnitude, options);
    case AugmentOp::rotate:
      return rotate(image, magnitude, options);
    case AugmentOp::brightness:
      return adjust_brightness(image, 1 + magnitude);
    case AugmentOp::color:
      return adjust_saturation(image, 1 + magnitude);
    case AugmentOp::contrast:
      return adjust_contrast(image, 1 + magnitude);
    case AugmentOp::sharpness:
      return adjust_sharpness(image, 1 + magnitude);
    case AugmentOp::posterize:
      return posterize(image, int(magnitude));
    case AugmentOp::solarize:
      return solarize(image, magnitude);
    case AugmentOp::auto_contrast:
      return autocontrast(image);
    case AugmentOp::equalize:
      return equalize(image);
    case AugmentOp::invert:
      return invert(image);
  }
  throw Error("no augmentation " + std::to_string(int(op)));
}

bool is_signed(AugmentOp op) { return op >= AugmentOp::shear_x && op <= AugmentOp::sharpness; }

std::vector<double> magnitudes(AugmentSpace space, AugmentOp op, int bins, Size size) {
  const bool wide = space == AugmentSpace::wide, mix = space == AugmentSpace::mix;
  const auto shift = [&](int side) { return wide ? 32 : mix ? side / 3.0 : 150.0 / 331.0 * side; };
  switch (op) {
    case AugmentOp::shear_x:
    case AugmentOp::shear_y:
      return evenly(0, wide ? 0.99 : 0.3, bins);
    case AugmentOp::translate_x:
      return evenly(0, shift(size.width), bins);
    case AugmentOp::translate_y:
      return evenly(0, shift(size.height), bins);
    case AugmentOp::rotate:
      return evenly(0, wide ? 135 : 30, bins);
    case AugmentOp::brightness:
    case AugmentOp::color:
    case AugmentOp::contrast:
    case AugmentOp::sharpness:
      return evenly(0, wide ? 0.99 : 0.9, bins);
    case AugmentOp::posterize:
      return bits(mix ? 4 : 8, wide ? 6 : 4, bins);
    case AugmentOp::solarize:
      return evenly(255, 0, bins);
    default:
      return {};
  }
}

AutoAugment::AutoAugment(AutoAugmentPolicy policy, const WarpOptions& options) : policy_(policy), options_(options) {}

void AutoAugment::apply(Picture& picture, base::RandomStream& random) const {
  constexpr int kBins = 10;
  const std::vector<PolicyPair>& pairs = policy_pairs(policy_);
  const PolicyPair& pair = pairs[random.below(std::uint32_t(pairs.size()))];
  const Size size = picture.size();  // of the picture as it came, for both operations
  for (const PolicyStep& step : {pair.first, pair.second}) {
    if (!happens(step.probability, random)) continue;
    const std::vector<double> all = magnitudes(AugmentSpace::standard, step.op, kBins, size);
    const double magnitude = all.empty() ? 0 : all[std::size_t(step.magnitude)];
    picture.replace(augmented(picture.pixels(), step.op, with_sign(magnitude, step.op, random), options_));
  }
}

RandAugment::RandAugment(const RandAugmentOptions& options) : options_(options) {
  const auto& [num_ops, magnitude, bins, warp] = options;
  require_bins(bins, "RandAugment");
  if (num_ops < 0 || magnitude < 0 || magnitude >= bins) {
    throw UsageError("RandAugment: " + std::to_string(num_ops) + " operations of magnitude " +
                     std::to_string(magnitude) + ", at least 0 of 0 to " + std::to_string(bins - 1) + " expected");
  }
}

void RandAugment::apply(Picture& picture, base::RandomStream& random) const {
  const Size size = picture.size();
  for (int i = 0; i < options_.num_ops; ++i) {
    const auto op = AugmentOp(random.below(kSharedOps));
    const std::vector<double> all = magnitudes(AugmentSpace::standard, op, options_.num_magnitude_bins, size);
    const double magnitude = all.empty() ? 0 : all[std::size_t(options_.magnitude)];
    picture.replace(augmented(picture.pixels(), op, with_sign(magnitude, op, random), options_.warp));
  }
}

TrivialAugmentWide::TrivialAugmentWide(int num_magnitude_bins, const WarpOptions& options)
    : bins_(num_magnitude_bins), options_(options) {
  require_bins(bins_, "TrivialAugmentWide");
}

void TrivialAugmentWide::apply(Picture& picture, base::RandomStream& random) const {
  const auto op = AugmentOp(random.below(kSharedOps));
  const std::vector<double> all = magnitudes(AugmentSpace::wide, op, bins_, picture.size());
  const double magnitude = all.empty() ? 0 : all[random.below(std::uint32_t(all.size()))];
  picture.replace(augmented(picture.pixels(), op, with_sign(magnitude, op, random), options_));
}

}  // namespace lockstep::data
