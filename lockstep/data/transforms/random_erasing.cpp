#include "lockstep/data/transforms/random_erasing.h"

#include <cmath>
#include <numbers>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {
namespace {

// Box and Muller's; the first number is never 0, whose logarithm would be infinite.
float normal(base::RandomStream& random) {
  const float radius = std::sqrt(-2.0f * std::log(float((random.next() >> 8) + 1) * 0x1p-24f));
  return radius * std::cos(random.between(0, 2 * std::numbers::pi_v<float>));
}

void require(bool right, const std::string& what) {
  if (!right) throw UsageError("RandomErasing: " + what);
}

std::string text(const Interval& range) { return std::to_string(range.low) + " to " + std::to_string(range.high); }

}  // namespace

RandomErasing::RandomErasing(const RandomErasingOptions& options) : options_(options) {
  const auto& [p, scale, ratio, value] = options;
  require_probability(p, "RandomErasing");
  require(scale.low >= 0 && scale.low <= scale.high && scale.high <= 1,
          "scale from " + text(scale) + ", 0 <= low <= high <= 1 expected");
  require(ratio.low > 0 && ratio.low <= ratio.high, "ratio from " + text(ratio) + ", 0 < low <= high expected");
  require(value.size() <= 1 || value.size() == 3, std::to_string(value.size()) + " values, 0, 1 or 3 expected");
}

std::optional<CropBox> RandomErasing::choose(Size image, base::RandomStream& random) const {
  constexpr int kTries = 10;
  const double area = double(image.height) * image.width;
  const float log_low = std::log(float(options_.ratio.low)), log_high = std::log(float(options_.ratio.high));
  for (int i = 0; i < kTries; ++i) {
    const double target = area * random.between(float(options_.scale.low), float(options_.scale.high));
    const double ratio = std::exp(random.between(log_low, log_high));
    const int height = int(std::nearbyint(std::sqrt(target * ratio)));
    const int width = int(std::nearbyint(std::sqrt(target / ratio)));
    if (height >= image.height || width >= image.width) continue;
    const int top = int(random.below(std::uint32_t(image.height - height + 1)));
    const int left = int(random.below(std::uint32_t(image.width - width + 1)));
    return CropBox{top, left, {height, width}};
  }
  return std::nullopt;
}

void RandomErasing::apply(const Slot& slot, base::RandomStream& random) const {
  if (!happens(options_.p, random)) return;
  if (const std::optional<CropBox> box = choose(slot.size, random)) erase(slot, *box, random);
}

void RandomErasing::erase(const Slot& slot, const CropBox& box, base::RandomStream& random) const {
  const std::vector<double>& value = options_.value;
  for (int c = 0; c < slot.channels; ++c) {
    for (int y = box.top; y < box.top + box.size.height; ++y) {
      for (int x = box.left; x < box.left + box.size.width; ++x) {
        slot.set(c, y, x, value.empty() ? normal(random) : float(value[value.size() == 1 ? 0 : std::size_t(c)]));
      }
    }
  }
}

}  // namespace lockstep::data
