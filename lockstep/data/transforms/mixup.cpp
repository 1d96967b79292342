#include "lockstep/data/transforms/mixup.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/bfloat16.h"
#include "lockstep/data/transforms/gamma.h"

namespace lockstep::data {
namespace {

// As torch computes rolled.mul_(1 - lambda).add_(samples.mul(lambda)): a number of the tensor's type after each.
struct Weights {
  explicit Weights(double lambda) : own(float(lambda)), other(float(1 - lambda)) {}

  float mixed(float mine, float before) const { return before * other + mine * own; }
  std::uint16_t mixed(std::uint16_t mine, std::uint16_t before) const {
    const float a = from_bfloat16(to_bfloat16(from_bfloat16(before) * other));
    return to_bfloat16(a + from_bfloat16(to_bfloat16(from_bfloat16(mine) * own)));
  }

  float own;
  float other;
};

// Calls mix(sample, the one before it) for all, from the last to the first: so the one before is still unmixed,
// but for the last, of which a copy is kept.
template <class Mix>
void with_the_one_before(const Slots& samples, Mix mix) {
  if (samples.count == 0) return;
  const std::size_t bytes = samples.first.bytes();
  const auto begin = static_cast<std::byte*>(samples.first.data);
  const auto place = [&](std::int64_t i) { return begin + std::size_t(i) * bytes; };
  // Words, so that the copy is aligned for numbers.
  std::vector<std::uint64_t> last(bytes / sizeof(std::uint64_t) + 1);
  std::memcpy(last.data(), place(samples.count - 1), bytes);
  for (std::int64_t i = samples.count - 1; i > 0; --i) mix(place(i), place(i - 1));
  mix(place(0), reinterpret_cast<const std::byte*>(last.data()));
}

template <class T>
void mix_up_as(const Slots& samples, const Weights& weights) {
  const std::size_t numbers = samples.first.bytes() / sizeof(T);
  with_the_one_before(samples, [&](std::byte* sample, const std::byte* before) {
    T* mine = reinterpret_cast<T*>(sample);
    const T* other = reinterpret_cast<const T*>(before);
    for (std::size_t i = 0; i < numbers; ++i) mine[i] = weights.mixed(mine[i], other[i]);
  });
}

void check_alpha(const char* name, double alpha) {
  if (alpha > 0 && std::isfinite(alpha)) return;
  throw UsageError(std::string(name) + ": alpha " + std::to_string(alpha) + ", a number above 0 expected");
}

}  // namespace

double draw_beta(double alpha, base::RandomStream& random) {
  const double a = log_gamma(alpha, random), b = log_gamma(alpha, random);
  const float share = float(1 / (1 + std::exp(b - a)));
  return std::clamp(share, std::numeric_limits<float>::min(), std::nextafter(1.0f, 0.0f));
}

void mix_up(const Slots& samples, double lambda) {
  if (samples.first.type == PixelType::float32) {
    mix_up_as<float>(samples, Weights(lambda));
  } else {
    mix_up_as<std::uint16_t>(samples, Weights(lambda));
  }
}

CropBox cut_box(Size image, double lambda, int row, int column) {
  const double ratio = 0.5 * std::sqrt(1 - lambda);
  const int half_width = int(ratio * image.width), half_height = int(ratio * image.height);
  const int left = std::max(column - half_width, 0), right = std::min(column + half_width, image.width);
  const int top = std::max(row - half_height, 0), bottom = std::min(row + half_height, image.height);
  return {top, left, {bottom - top, right - left}};
}

double share_outside(Size image, const CropBox& box) {
  return 1 - double(box.size.height) * box.size.width / (double(image.height) * image.width);
}

void cut_mix(const Slots& samples, const CropBox& box) {
  const Slot& slot = samples.first;
  const bool planes = slot.layout == PixelLayout::planes;
  const std::size_t pixel = (slot.type == PixelType::float32 ? 4 : 2) * std::size_t(planes ? 1 : slot.channels);
  const std::size_t row = pixel * std::size_t(slot.size.width);
  const std::size_t line = pixel * std::size_t(box.size.width);
  with_the_one_before(samples, [&](std::byte* sample, const std::byte* before) {
    for (int plane = 0; plane < (planes ? slot.channels : 1); ++plane) {
      for (int y = box.top; y < box.top + box.size.height; ++y) {
        const std::size_t at = std::size_t(plane * slot.size.height + y) * row + pixel * std::size_t(box.left);
        std::memcpy(sample + at, before + at, line);
      }
    }
  });
}

void mix_labels(std::span<const std::int64_t> labels, double lambda, std::int64_t classes, float* targets) {
  const Weights weights(lambda);
  std::fill_n(targets, std::int64_t(labels.size()) * classes, 0.0f);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    float* target = targets + std::int64_t(i) * classes;
    target[labels[i == 0 ? labels.size() - 1 : i - 1]] += weights.other;
    target[labels[i]] += weights.own;
  }
}

MixUp::MixUp(double alpha) : alpha_(alpha) { check_alpha("MixUp", alpha); }

double MixUp::apply(const Slots& samples, base::RandomStream& random) const {
  const double lambda = draw_beta(alpha_, random);
  mix_up(samples, lambda);
  return lambda;
}

CutMix::CutMix(double alpha) : alpha_(alpha) { check_alpha("CutMix", alpha); }

double CutMix::apply(const Slots& samples, base::RandomStream& random) const {
  const Size size = samples.first.size;
  const double lambda = draw_beta(alpha_, random);
  const int column = int(random.below(std::uint32_t(size.width)));
  const int row = int(random.below(std::uint32_t(size.height)));
  const CropBox box = cut_box(size, lambda, row, column);
  cut_mix(samples, box);
  return share_outside(size, box);
}

MixChoice::MixChoice(std::vector<std::shared_ptr<const BatchMix>> choices) : choices_(std::move(choices)) {
  if (choices_.empty()) throw UsageError("MixChoice: nothing to choose from");
}

double MixChoice::apply(const Slots& samples, base::RandomStream& random) const {
  return choices_[random.below(std::uint32_t(choices_.size()))]->apply(samples, random);
}

std::shared_ptr<const BatchMix> mixup_cutmix(double mixup_alpha, double cutmix_alpha) {
  std::vector<std::shared_ptr<const BatchMix>> choices;
  if (mixup_alpha != 0) choices.push_back(std::make_shared<MixUp>(mixup_alpha));
  if (cutmix_alpha != 0) choices.push_back(std::make_shared<CutMix>(cutmix_alpha));
  if (choices.size() < 2) return choices.empty() ? nullptr : choices[0];
  return std::make_shared<MixChoice>(std::move(choices));
}

}  // namespace lockstep::data
