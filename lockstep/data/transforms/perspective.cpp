#include "lockstep/data/transforms/perspective.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kUnknowns = 8;
using Equation = std::array<double, kUnknowns + 1>;  // the coefficients, and what they sum up to
using Equations = std::array<Equation, kUnknowns>;

Equations equations(const Corners& from, const Corners& to) {
  Equations all{};
  for (std::size_t i = 0; i < 4; ++i) {
    const double x = to[i][0], y = to[i][1], u = from[i][0], v = from[i][1];
    all[2 * i] = {x, y, 1, 0, 0, 0, -u * x, -u * y, u};
    all[2 * i + 1] = {0, 0, 0, x, y, 1, -v * x, -v * y, v};
  }
  return all;
}

bool three_on_a_line(const Corners& corners) {
  for (std::size_t left_out = 0; left_out < 4; ++left_out) {
    const auto &a = corners[(left_out + 1) % 4], &b = corners[(left_out + 2) % 4], &c = corners[(left_out + 3) % 4];
    const auto across = std::int64_t(b[0] - a[0]) * (c[1] - a[1]), down = std::int64_t(b[1] - a[1]) * (c[0] - a[0]);
    if (across == down) return true;
  }
  return false;
}

// Gauss' elimination with the largest pivot of each column. None: the equations depend on each other.
std::optional<PerspectiveMatrix> solved(Equations all) {
  for (std::size_t column = 0; column < kUnknowns; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column + 1; row < kUnknowns; ++row) {
      if (std::abs(all[row][column]) > std::abs(all[pivot][column])) pivot = row;
    }
    if (all[pivot][column] == 0) return std::nullopt;
    std::swap(all[column], all[pivot]);
    for (std::size_t row = column + 1; row < kUnknowns; ++row) {
      const double factor = all[row][column] / all[column][column];
      for (std::size_t k = column; k <= kUnknowns; ++k) all[row][k] -= factor * all[column][k];
    }
  }
  PerspectiveMatrix solution{};
  for (std::size_t row = kUnknowns; row-- > 0;) {
    double rest = all[row][kUnknowns];
    for (std::size_t k = row + 1; k < kUnknowns; ++k) rest -= all[row][k] * solution[k];
    solution[row] = rest / all[row][row];
  }
  return solution;
}

}  // namespace

PerspectiveMatrix perspective_matrix(const Corners& from, const Corners& to) {
  constexpr PerspectiveMatrix kIdentity = {1, 0, 0, 0, 1, 0, 0, 0};
  if (three_on_a_line(from) || three_on_a_line(to)) return kIdentity;
  PerspectiveMatrix matrix = solved(equations(from, to)).value_or(kIdentity);
  for (double& number : matrix) number = float(number);
  return matrix;
}

Corners corners_of(Size image) {
  const int right = image.width - 1, bottom = image.height - 1;
  return {{{0, 0}, {right, 0}, {right, bottom}, {0, bottom}}};
}

Corners distorted(Size image, double distortion_scale, base::RandomStream& random) {
  const int across = int(distortion_scale * (image.width / 2)), down = int(distortion_scale * (image.height / 2));
  Corners corners = corners_of(image);
  for (auto& [x, y] : corners) {
    const int inward_x = int(random.below(std::uint32_t(across) + 1));
    const int inward_y = int(random.below(std::uint32_t(down) + 1));
    x += x == 0 ? inward_x : -inward_x;
    y += y == 0 ? inward_y : -inward_y;
  }
  return corners;
}

RandomPerspective::RandomPerspective(const RandomPerspectiveOptions& options) : options_(options) {
  require_probability(options.p, "RandomPerspective");
  if (!(options.distortion_scale >= 0 && options.distortion_scale <= 1)) {
    throw UsageError("RandomPerspective: distortion_scale " + std::to_string(options.distortion_scale) +
                     ", 0 to 1 expected");
  }
}

void RandomPerspective::apply(Picture& picture, base::RandomStream& random) const {
  if (!happens(options_.p, random)) return;
  const Size size = picture.size();
  const Corners to = distorted(size, options_.distortion_scale, random);
  picture.replace(warp_perspective(picture.pixels(), perspective_matrix(corners_of(size), to), options_.warp));
}

}  // namespace lockstep::data
