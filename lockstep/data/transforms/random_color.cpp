#include "lockstep/data/transforms/random_color.h"

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {

// Wrong numbers are found here, not at the first picture that chance chooses.
RandomPosterize::RandomPosterize(int bits, double p)
    : RandomChange("RandomPosterize", p, [=](const ImageView& image) { return posterize(image, bits); }) {
  if (bits < 1 || bits > 8) throw UsageError("RandomPosterize: " + std::to_string(bits) + " bits, 1 to 8 expected");
}

RandomAdjustSharpness::RandomAdjustSharpness(double factor, double p)
    : RandomChange("RandomAdjustSharpness", p,
                   [=](const ImageView& image) { return adjust_sharpness(image, factor); }) {
  if (!(factor >= 0))
    throw UsageError("RandomAdjustSharpness: factor " + std::to_string(factor) + ", 0 or more expected");
}

}  // namespace lockstep::data
