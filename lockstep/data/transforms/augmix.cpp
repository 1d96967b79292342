#include "lockstep/data/transforms/augmix.h"

#include <cmath>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/gamma.h"

namespace lockstep::data {
namespace {

constexpr int kAugMixBins = 10;

Image chained(const ImageView& image, const std::vector<AugMixDraws::Operation>& chain, const WarpOptions& warp) {
  Image result = copy_of(image);
  for (const auto& [op, magnitude] : chain) result = augmented(result.view(), op, magnitude, warp);
  return result;
}

AugMixDraws::Operation draw_operation(const AugMixOptions& options, Size size, base::RandomStream& random) {
  const std::vector<AugmentOp>& ops = augmix_operations(options.all_ops);
  const AugmentOp op = ops[random.below(std::uint32_t(ops.size()))];
  const std::vector<double> all = magnitudes(AugmentSpace::mix, op, kAugMixBins, size);
  const double magnitude = all.empty() ? 0 : all[random.below(std::uint32_t(options.severity))];
  return {op, is_signed(op) && random.below(2) ? -magnitude : magnitude};
}

}  // namespace

const std::vector<AugmentOp>& augmix_operations(bool all_ops) {
  using enum AugmentOp;
  static const std::vector<AugmentOp> of_the_paper = {shear_x,   shear_y,  translate_x,   translate_y, rotate,
                                                      posterize, solarize, auto_contrast, equalize};
  static const std::vector<AugmentOp> all = {shear_x,   shear_y,  translate_x,   translate_y, rotate,
                                             posterize, solarize, auto_contrast, equalize,    brightness,
                                             color,     contrast, sharpness};
  return all_ops ? all : of_the_paper;
}

// torch's sums: a float after each product and each sum, the picture itself first.
Image augmixed(const ImageView& image, const AugMixDraws& draws, const WarpOptions& warp) {
  const Image original = copy_of(image);
  std::vector<float> sums(original.bytes());
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = draws.balance[0] * float(original.row(0)[i]);
  for (std::size_t chain = 0; chain < draws.chains.size(); ++chain) {
    const Image mine = chained(original.view(), draws.chains[chain], warp);
    const float share = draws.shares[chain] * draws.balance[1];
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += share * float(mine.row(0)[i]);
  }
  Image mixed = copy_of(image);
  for (std::size_t i = 0; i < sums.size(); ++i) mixed.row(0)[i] = std::uint8_t(sums[i]);
  return mixed;
}

AugMix::AugMix(const AugMixOptions& options) : options_(options) {
  const auto refuse = [](const std::string& what) { throw UsageError("AugMix: " + what + " expected"); };
  if (options.severity < 1 || options.severity > kAugMixBins)
    refuse("severity " + std::to_string(options.severity) + ", 1 to " + std::to_string(kAugMixBins));
  if (options.mixture_width < 1) refuse(std::to_string(options.mixture_width) + " chains, at least 1");
  if (!(options.alpha > 0) || !std::isfinite(options.alpha))
    refuse("alpha " + std::to_string(options.alpha) + ", a number above 0");
}

AugMixDraws AugMix::draw(Size size, base::RandomStream& random) const {
  AugMixDraws draws{.balance = draw_dirichlet(options_.alpha, 2, random),
                    .shares = draw_dirichlet(options_.alpha, options_.mixture_width, random)};
  for (int chain = 0; chain < options_.mixture_width; ++chain) {
    const int depth = options_.chain_depth > 0 ? options_.chain_depth : 1 + int(random.below(3));
    auto& operations = draws.chains.emplace_back();
    for (int i = 0; i < depth; ++i) operations.push_back(draw_operation(options_, size, random));
  }
  return draws;
}

void AugMix::apply(Picture& picture, base::RandomStream& random) const {
  const AugMixDraws draws = draw(picture.size(), random);
  picture.replace(augmixed(picture.pixels(), draws, options_.warp));
}

}  // namespace lockstep::data
