#include "lockstep/data/transforms/elastic.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

void require_nearest_or_bilinear(Interpolation interpolation, const char* who) {
  if (interpolation == Interpolation::nearest || interpolation == Interpolation::bilinear) return;
  const std::string what =
      interpolation == Interpolation::bicubic ? "bicubic interpolation" : "an interpolation of resizing";
  throw UsageError(who + (": " + what) + ", nearest or bilinear expected");
}

// torch's grid_sample with align_corners false: the pixel, in float, that a displaced pixel comes from.
float source_of_displaced(int pixel, float displacement, int count) {
  const float place = float(2 * pixel + 1 - count) / float(count) + displacement;
  return (place + 1) * (float(count) / 2) - 0.5f;
}

struct FloatPlace {
  float x, y;
};

bool is_inside(const ImageView& image, float column, float row) {
  return column >= 0 && column < float(image.width) && row >= 0 && row < float(image.height);
}

using Fill = std::array<std::uint8_t, 3>;

void move_nearest(const ImageView& image, FloatPlace place, const Fill& fill, std::uint8_t* to) {
  const float column = std::nearbyint(place.x), row = std::nearbyint(place.y);
  const bool inside = is_inside(image, column, row);
  const std::uint8_t* from = inside ? image.row(int(row)) + std::ptrdiff_t(column) * image.channels : fill.data();
  std::copy_n(from, image.channels, to);
}

// What lies outside counts as 0; the share of the four neighbours inside then weighs the mixture and the fill colour.
void move_bilinear(const ImageView& image, FloatPlace place, const Fill& fill, std::uint8_t* to) {
  const float left = std::floor(place.x), upper = std::floor(place.y);
  const float right_share = place.x - left, left_share = 1 - right_share;
  const float lower_share = place.y - upper, upper_share = 1 - lower_share;
  const float weights[] = {left_share * upper_share, right_share * upper_share, left_share * lower_share,
                           right_share * lower_share};
  const std::uint8_t* corners[4];
  float share_inside = 0;
  for (int i = 0; i < 4; ++i) {
    const float column = left + float(i % 2), row = upper + float(i / 2);
    const bool inside = is_inside(image, column, row);
    corners[i] = inside ? image.row(int(row)) + std::ptrdiff_t(column) * image.channels : nullptr;
    if (inside) share_inside += weights[i];
  }
  for (int c = 0; c < image.channels; ++c) {
    float mixture = 0;
    for (int i = 0; i < 4; ++i) {
      if (corners[i] != nullptr) mixture += float(corners[i][c]) * weights[i];
    }
    const float filled = mixture * share_inside + (1 - share_inside) * float(fill[std::size_t(c)]);
    to[c] = std::uint8_t(std::clamp(std::nearbyint(filled), 0.0f, 255.0f));
  }
}

FloatImage noise(Size size, base::RandomStream& random) {
  FloatImage image{size, 1, std::vector<float>(std::size_t(size.height) * std::size_t(size.width))};
  for (float& number : image.values) number = random.between(-1, 1);
  return image;
}

// torchvision's kernel for a sigma: 8 sigma wide, and odd.
int kernel_of(double sigma) {
  const int size = int(8 * sigma + 1);
  return size % 2 == 0 ? size + 1 : size;
}

}  // namespace

Image elastic_transform(const ImageView& image, const Displacement& displacement, const WarpOptions& options) {
  require_nearest_or_bilinear(options.interpolation, "elastic_transform");
  const auto move = options.interpolation == Interpolation::nearest ? move_nearest : move_bilinear;
  Image out(image.size(), image.channels);
  std::size_t pixel = 0;
  for (int y = 0; y < image.height; ++y) {
    std::uint8_t* to = out.row(y);
    for (int x = 0; x < image.width; ++x, ++pixel, to += image.channels) {
      const FloatPlace place{source_of_displaced(x, displacement.x.values[pixel], image.width),
                             source_of_displaced(y, displacement.y.values[pixel], image.height)};
      move(image, place, options.fill, to);
    }
  }
  return out;
}

ElasticTransform::ElasticTransform(const ElasticTransformOptions& options) : options_(options) {
  const auto& [alpha, sigma, warp] = options;
  require_nearest_or_bilinear(warp.interpolation, "ElasticTransform");
  if (!std::isfinite(alpha.x) || !std::isfinite(alpha.y)) {
    throw UsageError("ElasticTransform: alpha " + std::to_string(alpha.x) + ", " + std::to_string(alpha.y) +
                     ", finite numbers expected");
  }
  const bool positive = sigma.x > 0 && sigma.y > 0, none = sigma.x == 0 && sigma.y == 0;
  constexpr double kMost = 1e6;  // the kernel is eight times as wide, and counted in int
  if ((!positive && !none) || !(sigma.x <= kMost && sigma.y <= kMost)) {
    throw UsageError("ElasticTransform: sigma " + std::to_string(sigma.x) + ", " + std::to_string(sigma.y) +
                     ", both 0 or both above 0 and at most a million expected");
  }
}

Displacement ElasticTransform::choose(Size image, base::RandomStream& random) const {
  const PerAxis& alpha = options_.alpha;
  const PerAxis& sigma = options_.sigma;
  const auto along = [&](double most, double smoothness, int length) {
    FloatImage field = noise(image, random);
    if (smoothness > 0) {
      const int kernel = kernel_of(smoothness);
      field = blurred(field, gaussian_kernel(kernel, sigma.x), gaussian_kernel(kernel, sigma.y));
    }
    for (float& number : field.values) number = number * float(most) / float(length);
    return field;
  };
  FloatImage x = along(alpha.x, sigma.x, image.width);  // drawn before y, whatever order a list is evaluated in
  return {std::move(x), along(alpha.y, sigma.y, image.height)};
}

void ElasticTransform::apply(Picture& picture, base::RandomStream& random) const {
  const Displacement displacement = choose(picture.size(), random);
  picture.replace(elastic_transform(picture.pixels(), displacement, options_.warp));
}

}  // namespace lockstep::data
