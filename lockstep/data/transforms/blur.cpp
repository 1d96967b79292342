#include "lockstep/data/transforms/blur.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/crop.h"

namespace lockstep::data {
namespace {

void require_kernel(int size) {
  if (size >= 1 && size % 2 == 1) return;
  throw UsageError("GaussianBlur: kernel_size " + std::to_string(size) + ", an odd number above 0 expected");
}

// Which of `count` lines stand at −radius … count + radius − 1.
std::vector<int> mirrored_places(int count, int radius) {
  std::vector<int> places(static_cast<std::size_t>(count));
  std::iota(places.begin(), places.end(), 0);
  return padded(places, radius, radius, PaddingMode::reflect);
}

void add_product(float weight, const float* from, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] += weight * from[i];
}

void blur_rows(FloatImage& image, std::span<const float> kernel) {
  const auto channels = std::size_t(image.channels), row_size = std::size_t(image.size.width) * channels;
  const std::vector<int> places = mirrored_places(image.size.width, int(kernel.size() / 2));
  std::vector<float> line(places.size() * channels);
  for (int y = 0; y < image.size.height; ++y) {
    float* row = image.values.data() + std::size_t(y) * row_size;
    for (std::size_t x = 0; x < places.size(); ++x) {
      std::copy_n(row + std::size_t(places[x]) * channels, channels, line.data() + x * channels);
    }
    std::fill_n(row, row_size, 0.0f);
    for (std::size_t tap = 0; tap < kernel.size(); ++tap) {
      add_product(kernel[tap], line.data() + tap * channels, row_size, row);
    }
  }
}

FloatImage blur_columns(const FloatImage& image, std::span<const float> kernel) {
  const std::size_t row_size = std::size_t(image.size.width) * std::size_t(image.channels);
  const std::vector<int> places = mirrored_places(image.size.height, int(kernel.size() / 2));
  FloatImage out{image.size, image.channels, std::vector<float>(image.values.size())};
  for (std::size_t y = 0; y < std::size_t(image.size.height); ++y) {
    for (std::size_t tap = 0; tap < kernel.size(); ++tap) {
      const float* from = image.values.data() + std::size_t(places[y + tap]) * row_size;
      add_product(kernel[tap], from, row_size, out.values.data() + y * row_size);
    }
  }
  return out;
}

}  // namespace

std::vector<float> gaussian_kernel(int size, double sigma) {
  require_kernel(size);
  if (!(sigma > 0)) throw UsageError("GaussianBlur: sigma " + std::to_string(sigma) + ", more than 0 expected");
  std::vector<float> weights(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) {
    const double x = (i - size / 2) / sigma;
    weights[std::size_t(i)] = float(std::exp(-0.5 * x * x));
  }
  const float sum = std::accumulate(weights.begin(), weights.end(), 0.0f);
  for (float& weight : weights) weight /= sum;
  return weights;
}

FloatImage blurred(const FloatImage& image, std::span<const float> across, std::span<const float> down) {
  FloatImage rows = image;
  blur_rows(rows, across);
  return blur_columns(rows, down);
}

Image gaussian_blur(const ImageView& image, std::array<int, 2> kernel_size, std::array<double, 2> sigma) {
  FloatImage numbers{image.size(), image.channels, {}};
  const std::size_t row_size = std::size_t(image.width) * std::size_t(image.channels);
  numbers.values.reserve(row_size * std::size_t(image.height));
  for (int y = 0; y < image.height; ++y) {
    numbers.values.insert(numbers.values.end(), image.row(y), image.row(y) + row_size);
  }
  numbers = blurred(numbers, gaussian_kernel(kernel_size[0], sigma[0]), gaussian_kernel(kernel_size[1], sigma[1]));
  Image out(image.size(), image.channels);
  std::ranges::transform(numbers.values, out.row(0),
                         [](float sample) { return std::uint8_t(std::clamp(std::nearbyint(sample), 0.0f, 255.0f)); });
  return out;
}

GaussianBlur::GaussianBlur(const std::array<int, 2>& kernel_size, const Interval& sigma)
    : kernel_size_(kernel_size), sigma_(sigma) {
  for (const int size : kernel_size) require_kernel(size);
  if (!(sigma.low > 0 && sigma.low <= sigma.high)) {
    throw UsageError("GaussianBlur: sigma from " + std::to_string(sigma.low) + " to " + std::to_string(sigma.high) +
                     ", 0 < low <= high expected");
  }
}

void GaussianBlur::apply(Picture& picture, base::RandomStream& random) const {
  const double sigma = random.between(float(sigma_.low), float(sigma_.high));
  picture.replace(gaussian_blur(picture.pixels(), kernel_size_, {sigma, sigma}));
}

}  // namespace lockstep::data
