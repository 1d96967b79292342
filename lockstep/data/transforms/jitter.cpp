#include <algorithm>
#include <array>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/augment.h"
#include "lockstep/data/transforms/color.h"

namespace lockstep::data {
namespace {

struct Adjustment {
  Image (*adjust)(const ImageView& image, double factor);
  double amount;
  double center;
};

}  // namespace

ColorJitter::ColorJitter(const ColorJitterOptions& options) : options_(options) {
  const double least = std::min({options.brightness, options.contrast, options.saturation, options.hue});
  if (!(least >= 0)) throw UsageError("ColorJitter: " + std::to_string(least) + ", at least 0 expected");
  if (!(options.hue <= 0.5)) {
    throw UsageError("ColorJitter: hue " + std::to_string(options.hue) + ", at most 0.5 expected");
  }
}

void ColorJitter::apply(Picture& picture, base::RandomStream& random) const {
  const std::array<Adjustment, 4> adjustments = {{{adjust_brightness, options_.brightness, 1},
                                                  {adjust_contrast, options_.contrast, 1},
                                                  {adjust_saturation, options_.saturation, 1},
                                                  {adjust_hue, options_.hue, 0}}};
  std::array<std::uint32_t, 4> order = {0, 1, 2, 3};
  for (std::uint32_t i = 3; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  for (const std::uint32_t i : order) {
    const auto [adjust, amount, center] = adjustments[i];
    const double low = center == 1 ? std::max(0.0, 1 - amount) : -amount;
    const double factor = random.between(float(low), float(center + amount));
    if (amount > 0) picture.replace(adjust(picture.pixels(), factor));
  }
}

RandomRotation::RandomRotation(double degrees, const WarpOptions& options, bool expand)
    : degrees_(degrees), options_(options), expand_(expand) {
  if (!(degrees >= 0)) throw UsageError("RandomRotation: " + std::to_string(degrees) + " degrees, at least 0 expected");
}

void RandomRotation::apply(Picture& picture, base::RandomStream& random) const {
  const double degrees = random.between(float(-degrees_), float(degrees_));
  picture.replace(rotate(picture.pixels(), degrees, options_, expand_));
}

}  // namespace lockstep::data
