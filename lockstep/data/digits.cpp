#include "lockstep/data/digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/data/glyphs.h"

namespace lockstep::data {
namespace {

constexpr int kSide = 28;
constexpr int kClasses = 10;
using base::RandomStream;
using Canvas = std::array<float, kSide * kSide>;  // squared distance to the pen's path

struct Point {
  float x, y;
};

// How far samples differ from the glyph. Tuned so that the ConvNet (Adam, 1e-3, 200 samples a
// step) passes 98 % on the test split late in its first epoch.
struct Variation {
  float wobble = 14;                 // control points move by so much, in glyph units (the glyph is 200 high)
  float turn = 0.16f;                // tan of half the angle: 18 degrees
  float slant = 0.30f;               // shear
  float size[2] = {0.080f, 0.118f};  // pixels per glyph unit
  float narrow[2] = {0.70f, 1.10f};  // width of a glyph against its height
  float shift = 2.5f;                // pixels
  float pen[2] = {0.5f, 1.5f};       // half the stroke's width, pixels
  float blur[2] = {0.7f, 1.7f};      // width of the stroke's soft edge, pixels
  float ink[2] = {120, 255};
  float noise[2] = {4, 56};  // greatest amount added or taken per pixel
  int scratches = 2;         // up to so many short strokes that mean nothing
};
constexpr Variation kVariation;

float draw(RandomStream& random, const float (&range)[2]) { return random.between(range[0], range[1]); }

// Glyph units to pixels.
struct Placement {
  float xx, xy, yx, yy, x0, y0;

  Point operator()(Point p) const { return {xx * p.x + xy * p.y + x0, yx * p.x + yy * p.y + y0}; }
};

Placement draw_placement(RandomStream& random) {
  // A rotation without sine and cosine: the rational points of the circle.
  const float t = random.between(-kVariation.turn, kVariation.turn);
  const float cosine = (1 - t * t) / (1 + t * t);
  const float sine = 2 * t / (1 + t * t);
  const float slant = random.between(-kVariation.slant, kVariation.slant);
  const float high = draw(random, kVariation.size);
  const float wide = high * draw(random, kVariation.narrow);
  const float x0 = 13.5f + random.between(-kVariation.shift, kVariation.shift);
  const float y0 = 13.5f + random.between(-kVariation.shift, kVariation.shift);
  return {wide * cosine, high * (slant * cosine - sine), wide * sine, high * (slant * sine + cosine), x0, y0};
}

// Lowers each pixel near the segment a-b to its squared distance from it.
void draw_segment(Canvas& canvas, Point a, Point b, float reach) {
  const auto pixel = [](float v) { return std::clamp(int(v), 0, kSide - 1); };
  const int left = pixel(std::min(a.x, b.x) - reach), right = pixel(std::max(a.x, b.x) + reach + 1);
  const int top = pixel(std::min(a.y, b.y) - reach), bottom = pixel(std::max(a.y, b.y) + reach + 1);
  const float dx = b.x - a.x, dy = b.y - a.y;
  const float per_length2 = 1 / (dx * dx + dy * dy + 1e-6f);
  for (int y = top; y <= bottom; ++y) {
    for (int x = left; x <= right; ++x) {
      const float px = float(x) - a.x, py = float(y) - a.y;
      const float along = std::clamp((px * dx + py * dy) * per_length2, 0.0f, 1.0f);
      const float ex = px - along * dx, ey = py - along * dy;
      float& nearest = canvas[y * kSide + x];
      nearest = std::min(nearest, ex * ex + ey * ey);
    }
  }
}

Point middle(Point a, Point b) { return {(a.x + b.x) / 2, (a.y + b.y) / 2}; }

// A quadratic B-spline: from middle to middle of the control polygon, ends included.
void draw_curve(Canvas& canvas, const std::vector<Point>& points, float reach) {
  constexpr int kPieces = 4;
  Point from = points.front();
  for (std::size_t i = 1; i + 1 < points.size(); ++i) {
    const Point start = i == 1 ? points[0] : middle(points[i - 1], points[i]);
    const Point end = i + 2 == points.size() ? points[i + 1] : middle(points[i], points[i + 1]);
    for (int piece = 1; piece <= kPieces; ++piece) {
      const float t = float(piece) / kPieces, s = 1 - t;
      const Point to = {s * s * start.x + 2 * s * t * points[i].x + t * t * end.x,
                        s * s * start.y + 2 * s * t * points[i].y + t * t * end.y};
      draw_segment(canvas, from, to, reach);
      from = to;
    }
  }
  if (points.size() == 2) draw_segment(canvas, points[0], points[1], reach);
}

void draw_glyph(Canvas& canvas, int digit, RandomStream& random, float reach) {
  const auto variants = glyphs(digit);
  const Glyph& glyph = variants[random.below(std::uint32_t(variants.size()))];
  const Placement place = draw_placement(random);
  std::vector<Point> points;
  for (const Stroke& stroke : glyph) {
    points.clear();
    Point moved{};
    for (std::size_t i = 0; i < stroke.size(); ++i) {
      // A doubled point is a corner: both of its copies move together.
      if (i == 0 || stroke[i] != stroke[i - 1]) {
        moved = {float(stroke[i].first) + random.between(-kVariation.wobble, kVariation.wobble),
                 float(stroke[i].second) + random.between(-kVariation.wobble, kVariation.wobble)};
      }
      points.push_back(place(moved));
    }
    draw_curve(canvas, points, reach);
  }
}

void draw_scratches(Canvas& canvas, RandomStream& random, float reach) {
  for (auto left = random.below(std::uint32_t(kVariation.scratches) + 1); left > 0; --left) {
    const Point a = {random.between(0, kSide - 1), random.between(0, kSide - 1)};
    const Point b = {a.x + random.between(-5, 5), a.y + random.between(-5, 5)};
    draw_segment(canvas, a, b, reach);
  }
}

// Ink by distance: full inside the pen, falling over the soft edge; then noise, 8 bits each.
void develop(const Canvas& canvas, RandomStream& random, float pen, float blur, std::uint8_t* image) {
  const float ink = draw(random, kVariation.ink);
  const float noise = draw(random, kVariation.noise) / 128;
  std::uint32_t bits = 0;
  for (int i = 0; i < kSide * kSide; ++i) {
    bits = i % 4 == 0 ? random.next() : bits >> 8;
    const float full = std::clamp((pen + blur - std::sqrt(canvas[i])) / blur, 0.0f, 1.0f);
    const float value = ink * full + noise * (float(bits & 255) - 127.5f);
    image[i] = std::uint8_t(std::clamp(value, 0.0f, 255.0f));
  }
}

void draw_digit(int digit, RandomStream random, std::uint8_t* image) {
  Canvas canvas;
  canvas.fill(1e6f);
  const float pen = draw(random, kVariation.pen);
  const float blur = draw(random, kVariation.blur);
  draw_glyph(canvas, digit, random, pen + blur);
  draw_scratches(canvas, random, pen + blur);
  develop(canvas, random, pen, blur, image);
}

// Equally many of each class, in an order drawn from the seed (Fisher-Yates).
std::vector<int> draw_labels(RandomStream random, std::int64_t size) {
  std::vector<int> labels(size);
  for (std::int64_t i = 0; i < size; ++i) labels[i] = int(i % kClasses);
  for (std::int64_t i = size - 1; i > 0; --i) std::swap(labels[i], labels[random.below(std::uint32_t(i + 1))]);
  return labels;
}

}  // namespace

MemoryPictures make_digits(Split split, std::uint64_t seed) { return make_digits(split, seed, digits_size(split)); }

MemoryPictures make_digits(Split split, std::uint64_t seed, std::int64_t count) {
  if (count < 0 || count > digits_size(split)) {
    throw UsageError("digits: " + std::to_string(count) + " samples asked for, the set has " +
                     std::to_string(digits_size(split)));
  }
  const std::uint32_t domain = split == Split::train ? 0 : 2;  // domain + 1: the labels
  const std::vector<int> labels = draw_labels({seed, domain + 1, 0}, digits_size(split));
  MemoryPictures::Content set{.size = {kSide, kSide}, .channels = 1};
  set.labels.assign(labels.begin(), labels.begin() + count);
  set.pixels.resize(std::size_t(count) * kSide * kSide);
  for (int digit = 0; digit < kClasses; ++digit) set.classes.push_back(std::to_string(digit));
  std::uint8_t* image = set.pixels.data();
  for (std::int64_t i = 0; i < count; ++i, image += kSide * kSide)
    draw_digit(labels[std::size_t(i)], {seed, domain, std::uint64_t(i)}, image);
  return MemoryPictures(std::move(set));
}

}  // namespace lockstep::data
