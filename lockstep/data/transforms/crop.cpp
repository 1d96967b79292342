#include "lockstep/data/transforms/crop.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

void require_positive(Size size, const char* who) {
  if (size.height < 1 || size.width < 1) {
    throw UsageError(std::string(who) + ": size " + to_string(size) + ", at least 1x1 expected");
  }
}

void require_padding(const Padding& p, const char* who) {
  const int least = std::min({p.left, p.top, p.right, p.bottom});
  if (least < 0) throw UsageError(std::string(who) + ": padding of " + std::to_string(least) + ", at least 0 expected");
}

std::vector<int> every_place(int count) {
  std::vector<int> places(static_cast<std::size_t>(count));
  std::iota(places.begin(), places.end(), 0);
  return places;
}

// Which of `count` items stands at `place`, which may be before the first or behind the last.
int source_of(int place, int count, PaddingMode mode) {
  if (place >= 0 && place < count) return place;
  if (mode == PaddingMode::constant) return -1;
  if (mode == PaddingMode::edge || count == 1) return place < 0 ? 0 : count - 1;
  const bool edge_twice = mode == PaddingMode::symmetric;
  const int period = edge_twice ? 2 * count : 2 * (count - 1);
  const int phase = (place % period + period) % period;
  return phase < count ? phase : period - phase - (edge_twice ? 1 : 0);
}

// The pixels at these rows and columns, the fill colour where there is none.
Image gather(const ImageView& image, std::span<const int> rows, std::span<const int> columns, const Border& border) {
  Image out(int(rows.size()), int(columns.size()), image.channels);
  for (int y = 0; y < out.height(); ++y) {
    std::uint8_t* to = out.row(y);
    const int row = rows[std::size_t(y)];
    for (const int column : columns) {
      const bool filled = row < 0 || column < 0;
      const std::uint8_t* from = filled ? border.fill.data() : image.row(row) + std::ptrdiff_t(column) * image.channels;
      for (int c = 0; c < image.channels; ++c) *to++ = from[c];
    }
  }
  return out;
}

bool in_one_piece(std::span<const int> places) {
  return places.front() >= 0 &&
         std::ranges::adjacent_find(places, [](int a, int b) { return b != a + 1; }) == places.end();
}

// The part of the padded picture that these rows and columns are.
void see(Picture& picture, std::span<const int> rows, std::span<const int> columns, const Border& border) {
  if (in_one_piece(rows) && in_one_piece(columns)) {
    picture.crop(rows.front(), columns.front(), {int(rows.size()), int(columns.size())});
  } else {
    picture.replace(gather(picture.pixels(), rows, columns, border));
  }
}

}  // namespace

std::vector<int> padded(const std::vector<int>& places, int before, int after, PaddingMode mode) {
  std::vector<int> more;
  const int count = int(places.size());
  more.reserve(std::size_t(before + count + after));
  for (int place = -before; place < count + after; ++place) {
    const int source = source_of(place, count, mode);
    more.push_back(source < 0 ? -1 : places[std::size_t(source)]);
  }
  return more;
}

Image pad(const ImageView& image, const Padding& padding, const Border& border) {
  require_padding(padding, "pad");
  return gather(image, padded(every_place(image.height), padding.top, padding.bottom, border.mode),
                padded(every_place(image.width), padding.left, padding.right, border.mode), border);
}

CenterCrop::CenterCrop(Size size) : size_(size) { require_positive(size, "CenterCrop"); }

void CenterCrop::apply(Picture& picture, base::RandomStream&) const {
  const auto middle = [](int have, int want) {
    const int missing = std::max(want - have, 0);
    const std::vector<int> places = padded(every_place(have), missing / 2, (missing + 1) / 2, PaddingMode::constant);
    const auto first = std::ptrdiff_t(std::nearbyint((int(places.size()) - want) / 2.0));  // half to even, as Python
    return std::vector<int>(places.begin() + first, places.begin() + first + want);
  };
  const auto [height, width] = picture.size();
  see(picture, middle(height, size_.height), middle(width, size_.width), {});
}

RandomCrop::RandomCrop(const RandomCropOptions& options) : options_(options) {
  require_positive(options.size, "RandomCrop");
  require_padding(options.padding, "RandomCrop");
}

void RandomCrop::apply(Picture& picture, base::RandomStream& random) const {
  const auto& [size, padding, pad_if_needed, border] = options_;
  std::vector<int> rows = padded(every_place(picture.size().height), padding.top, padding.bottom, border.mode);
  std::vector<int> columns = padded(every_place(picture.size().width), padding.left, padding.right, border.mode);
  const int rows_missing = size.height - int(rows.size()), columns_missing = size.width - int(columns.size());
  if (pad_if_needed && rows_missing > 0) rows = padded(rows, rows_missing, rows_missing, border.mode);
  if (pad_if_needed && columns_missing > 0) columns = padded(columns, columns_missing, columns_missing, border.mode);
  const Size whole{int(rows.size()), int(columns.size())};
  if (whole.height < size.height || whole.width < size.width) {
    throw UsageError("RandomCrop: " + to_string(size) + " out of a picture of " + to_string(whole) +
                     " (padding included); choose a smaller crop, more padding or pad_if_needed");
  }
  const std::size_t top = random.below(std::uint32_t(whole.height - size.height + 1));
  const std::size_t left = random.below(std::uint32_t(whole.width - size.width + 1));
  see(picture, std::span(rows).subspan(top, std::size_t(size.height)),
      std::span(columns).subspan(left, std::size_t(size.width)), border);
}

}  // namespace lockstep::data
