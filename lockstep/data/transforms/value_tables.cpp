#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/color.h"

namespace lockstep::data {
namespace {

using ValueTable = std::array<std::uint8_t, 256>;
using Histogram = std::array<std::int64_t, 256>;

// The same for each channel: what becomes of a value.
template <class F>
ValueTables table_of(F value) {
  ValueTable table;
  for (int x = 0; x < 256; ++x) table[std::size_t(x)] = std::uint8_t(value(x));
  return {table, table, table};
}

template <class F>
ValueTables tables_by_histogram(const ImageView& image, F table) {
  std::array<Histogram, 3> histograms{};
  for (int y = 0; y < image.height; ++y) {
    const std::uint8_t* from = image.row(y);
    for (int x = 0; x < image.width; ++x) {
      for (int c = 0; c < image.channels; ++c) ++histograms[std::size_t(c)][*from++];
    }
  }
  return {table(histograms[0]), table(histograms[1]), table(histograms[2])};
}

ValueTable unchanged() {
  return table_of([](int x) { return x; })[0];
}

ValueTable stretched(const Histogram& histogram) {
  int low = 0, high = 255;
  while (low < 255 && histogram[std::size_t(low)] == 0) ++low;
  while (high > 0 && histogram[std::size_t(high)] == 0) --high;
  if (high <= low) return unchanged();
  const double scale = 255.0 / (high - low);
  const double offset = -low * scale;
  return table_of([&](int x) { return std::clamp(int(x * scale + offset), 0, 255); })[0];
}

ValueTable equalized(const Histogram& histogram) {
  std::int64_t total = 0, last = 0;
  int used = 0;
  for (const std::int64_t count : histogram) {
    if (count == 0) continue;
    total += count;
    last = count;
    ++used;
  }
  const std::int64_t step = (total - last) / 255;
  if (used <= 1 || step == 0) return unchanged();
  ValueTable table;
  std::int64_t before = step / 2;
  for (std::size_t x = 0; x < 256; ++x) {
    table[x] = std::uint8_t(std::min<std::int64_t>(before / step, 255));
    before += histogram[x];
  }
  return table;
}

}  // namespace

Image invert(const ImageView& image) {
  return map_values(image, table_of([](int x) { return 255 - x; }));
}

Image posterize(const ImageView& image, int bits) {
  if (bits < 0 || bits > 8) throw UsageError("posterize: " + std::to_string(bits) + " bits, 0 to 8 expected");
  const int mask = ~((1 << (8 - bits)) - 1);
  return map_values(image, table_of([&](int x) { return x & mask; }));
}

Image solarize(const ImageView& image, double threshold) {
  return map_values(image, table_of([&](int x) { return x < threshold ? x : 255 - x; }));
}

Image autocontrast(const ImageView& image) { return map_values(image, tables_by_histogram(image, stretched)); }

Image equalize(const ImageView& image) { return map_values(image, tables_by_histogram(image, equalized)); }

}  // namespace lockstep::data
