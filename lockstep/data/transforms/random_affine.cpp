#include "lockstep/data/transforms/random_affine.h"

#include <cmath>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

// As floats, which are drawn between the two, they are finite.
void require_range(double low, double high, const char* what) {
  if (low <= high && std::isfinite(float(low)) && std::isfinite(float(high))) return;
  throw UsageError("RandomAffine: " + std::string(what) + " from " + std::to_string(low) + " to " +
                   std::to_string(high) + ", low <= high expected");
}

double drawn(double low, double high, base::RandomStream& random) { return random.between(float(low), float(high)); }

}  // namespace

RandomAffine::RandomAffine(const AngleRange& degrees, const RandomAffineOptions& options)
    : degrees_(degrees), options_(options) {
  require_range(degrees.low, degrees.high, "degrees");
  require_range(options.shear.low, options.shear.high, "shear");
  require_range(options.shear_y.low, options.shear_y.high, "shear_y");
  require_range(options.scale.low, options.scale.high, "scale");
  if (options.scale.low <= 0) {
    throw UsageError("RandomAffine: scale from " + std::to_string(options.scale.low) + ", more than 0 expected");
  }
  if (const auto& center = options.center; center && !(std::isfinite((*center)[0]) && std::isfinite((*center)[1]))) {
    throw UsageError("RandomAffine: center " + std::to_string((*center)[0]) + ", " + std::to_string((*center)[1]) +
                     ", finite numbers expected");
  }
  for (const double part : options.translate) {
    if (part >= 0 && part <= 1) continue;
    throw UsageError("RandomAffine: translate by " + std::to_string(part) + " of the picture, 0 to 1 expected");
  }
}

AffineOptions RandomAffine::choose(Size image, base::RandomStream& random) const {
  const auto& [translate, scale, shear, shear_y, center, warp] = options_;
  AffineOptions chosen{.center = center.value_or(std::array{image.width * 0.5, image.height * 0.5})};
  chosen.angle = drawn(degrees_.low, degrees_.high, random);
  const double most[] = {translate[0] * image.width, translate[1] * image.height};
  for (std::size_t i = 0; i < 2; ++i) {
    chosen.translate[i] = std::nearbyint(drawn(-most[i], most[i], random));  // half to even, as Python
  }
  chosen.scale = drawn(scale.low, scale.high, random);
  chosen.shear = {drawn(shear.low, shear.high, random), 0};
  chosen.shear[1] = drawn(shear_y.low, shear_y.high, random);
  return chosen;
}

void RandomAffine::apply(Picture& picture, base::RandomStream& random) const {
  const Size size = picture.size();
  const AffineMatrix matrix = affine_matrix(choose(size, random));
  picture.replace(warp(picture.pixels(), size, matrix, options_.warp));
}

}  // namespace lockstep::data
