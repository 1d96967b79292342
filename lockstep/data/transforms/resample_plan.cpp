#include "lockstep/data/transforms/resample_plan.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/data/transforms/pixel_kernels.h"

namespace lockstep::data {
namespace {

struct Filter {
  double radius;  // nothing beyond it
  double (*weight)(double distance);
};

double triangle(double distance) {
  const double x = std::abs(distance);
  return x < 1.0 ? 1.0 - x : 0.0;
}

// R. Keys, "Cubic convolution interpolation for digital image processing", 1981, with a = −1/2.
double keys(double distance) {
  constexpr double a = -0.5;
  const double x = std::abs(distance);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

double rectangle(double distance) { return distance > -0.5 && distance <= 0.5 ? 1.0 : 0.0; }

double sinc(double distance) {
  if (distance == 0.0) return 1.0;
  const double angle = distance * std::numbers::pi;
  return std::sin(angle) / angle;
}

// With the window's numbers in floats, as Pillow has them.
double hamming(double distance) {
  const double x = std::abs(distance);
  if (x == 0.0) return 1.0;  // the floats do not add up to it
  if (x >= 1.0) return 0.0;
  return sinc(x) * (double(0.54F) + double(0.46F) * std::cos(x * std::numbers::pi));
}

double lanczos(double distance) {
  return distance >= -3.0 && distance < 3.0 ? sinc(distance) * sinc(distance / 3) : 0.0;
}

Filter filter_of(Interpolation interpolation) {
  switch (interpolation) {
    case Interpolation::nearest:  // has none: plan_nearest()
    case Interpolation::bilinear:
      return {1.0, triangle};
    case Interpolation::bicubic:
      return {2.0, keys};
    case Interpolation::box:
      return {0.5, rectangle};
    case Interpolation::hamming:
      return {1.0, hamming};
    case Interpolation::lanczos:
      return {3.0, lanczos};
  }
  __builtin_unreachable();
}

std::int32_t to_fixed(double weight) {
  const double scaled = weight * (1 << kWeightBits);
  return std::int32_t(weight < 0 ? scaled - 0.5 : scaled + 0.5);
}

}  // namespace

ResamplePlan plan_resample(const Scaling& scaling, Stretch wanted, Interpolation interpolation) {
  const auto [from, begin, end, to] = scaling;
  const Filter filter = filter_of(interpolation);
  const double scale = double(end - begin) / to;
  const double stretch = std::max(scale, 1.0);
  const double radius = filter.radius * stretch;
  const double narrow = 1.0 / stretch;

  ResamplePlan plan;
  plan.max_taps = int(std::ceil(radius)) * 2 + 1;
  plan.ranges.reserve(std::size_t(wanted.count));
  plan.weights.resize(std::size_t(wanted.count) * std::size_t(plan.max_taps));
  std::vector<double> weights(std::size_t(plan.max_taps));
  for (int i = 0; i < wanted.count; ++i) {
    const double center = begin + (wanted.first + i + 0.5) * scale;
    // NOLINTBEGIN(bugprone-incorrect-roundings): as Pillow rounds, also what is below zero
    const int first = std::clamp(int(center - radius + 0.5), 0, from - 1);  // floats end behind a very long line
    const int taps = std::min(int(center + radius + 0.5), from) - first;
    // NOLINTEND(bugprone-incorrect-roundings)
    double sum = 0;
    for (int tap = 0; tap < taps; ++tap) {
      weights[std::size_t(tap)] = filter.weight((tap + first - center + 0.5) * narrow);
      sum += weights[std::size_t(tap)];
    }
    std::int32_t* fixed = plan.weights.data() + std::ptrdiff_t(i) * plan.max_taps;
    for (int tap = 0; tap < taps; ++tap) {
      fixed[tap] = to_fixed(sum != 0 ? weights[std::size_t(tap)] / sum : weights[std::size_t(tap)]);
    }
    plan.ranges.push_back({first, taps});
  }
  return plan;
}

bool columns_first(Size from, Size to) {
  const int rows_less = from.height - to.height;
  const int columns_less = from.width - to.width;
  return rows_less > 0 && 2 * std::int64_t(columns_less) < rows_less;
}

std::vector<int> plan_nearest(const Scaling& scaling, Stretch wanted) {
  const auto [from, begin, end, to] = scaling;
  const double scale = double(end - begin) / to;
  std::vector<int> places;
  double place = begin + scale * 0.5;
  for (int i = 0; i < wanted.first; ++i) place += scale;  // a product rounds otherwise
  places.reserve(std::size_t(wanted.count));
  for (int i = 0; i < wanted.count; ++i, place += scale) {
    places.push_back(place < 0 || place >= from ? -1 : int(place));
  }
  return places;
}

}  // namespace lockstep::data
