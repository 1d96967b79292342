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

// What is added to a line of pixels.
struct Frame {
  int before;
  int after;
  int around;  // of that, because it is still too short

  int start() const { return around + before; }
  int length(int count) const { return 2 * around + before + count + after; }
  std::vector<int> places(int count, PaddingMode mode) const {
    return padded(padded(every_place(count), before, after, mode), around, around, mode);
  }
};

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

// The same for a rectangle that may reach beyond the picture, into a border of one colour.
Image framed(const ImageView& image, const CropBox& box, const std::array<std::uint8_t, 3>& fill) {
  const auto [top, left, size] = box;
  Image out(size, image.channels);
  const std::ptrdiff_t channels = image.channels;
  const auto paint = [&](std::uint8_t* to, int pixels) {
    if (channels == 1 || (fill[0] == fill[1] && fill[0] == fill[2])) {
      std::memset(to, fill[0], std::size_t(pixels * channels));
    } else {
      for (int x = 0; x < pixels; ++x) to = std::copy_n(fill.begin(), 3, to);
    }
  };
  const int first = std::clamp(-left, 0, size.width);  // columns of the border before those of the picture
  const int count = std::clamp(image.width - left, first, size.width) - first;
  for (int y = 0; y < size.height; ++y) {
    std::uint8_t* to = out.row(y);
    if (top + y < 0 || top + y >= image.height || count == 0) {
      paint(to, size.width);
      continue;
    }
    paint(to, first);
    std::memcpy(to + first * channels, image.row(top + y) + (left + first) * channels, std::size_t(count * channels));
    paint(to + (first + count) * channels, size.width - first - count);
  }
  return out;
}

bool in_one_piece(std::span<const int> places) {
  return places.front() >= 0 &&
         std::ranges::adjacent_find(places, [](int a, int b) { return b != a + 1; }) == places.end();
}

// Which of `count` lines are among the `size` from `place` on, which may be before the first or behind the last.
struct Overlap {
  int first;
  int count;
};

Overlap overlap(int place, int size, int count) {
  const std::int64_t first = std::clamp(place, 0, count);
  return {int(first), int(std::clamp(std::int64_t(place) + size, first, std::int64_t(count)) - first)};
}

// The part of the padded picture that these rows and columns are.
void see(Picture& picture, std::span<const int> rows, std::span<const int> columns, const Border& border) {
  if (in_one_piece(rows) && in_one_piece(columns)) {
    picture.crop(rows.front(), columns.front(), {int(rows.size()), int(columns.size())});
  } else {
    require_possible("crop", picture.size(), {int(rows.size()), int(columns.size())});
    picture.replace(gather(picture.pixels(), rows, columns, border));
  }
}

// The same before there is a picture.
void see(Placement& placement, const CropBox& box, const std::array<std::uint8_t, 3>& fill) {
  const Size from = placement.box.size;
  const bool inside = box.top >= 0 && box.left >= 0 && box.size.height <= from.height - box.top &&
                      box.size.width <= from.width - box.left;
  if (!inside) require_possible("crop", from, box.size);
  placement.crop(box, fill);
}

}  // namespace

void see(Picture& picture, const CropBox& box, const std::array<std::uint8_t, 3>& fill) {
  const auto [top, left, size] = box;
  const Overlap rows = overlap(top, size.height, picture.size().height);
  const Overlap columns = overlap(left, size.width, picture.size().width);
  const bool inside = rows.count == size.height && columns.count == size.width;
  if (!inside) require_possible("crop", picture.size(), size);
  if (rows.count > 0 && columns.count > 0) {
    picture.crop(rows.first, columns.first, {rows.count, columns.count});  // nothing else need be made
    if (inside) return;
    picture.replace(framed(picture.pixels(), {top - rows.first, left - columns.first, size}, fill));
  } else {
    picture.crop(0, 0, {1, 1});  // for its channels
    picture.replace(framed(picture.pixels(), {1, 1, size}, fill));
  }
}

std::vector<int> padded(const std::vector<int>& places, int before, int after, PaddingMode mode) {
  std::vector<int> more;
  const int count = int(places.size());
  more.reserve(std::size_t(before) + places.size() + std::size_t(after));
  for (int place = -before; place < count + after; ++place) {
    const int source = source_of(place, count, mode);
    more.push_back(source < 0 ? -1 : places[std::size_t(source)]);
  }
  return more;
}

Image pad(const ImageView& image, const Padding& padding, const Border& border) {
  require_padding(padding, "pad");
  require_possible("pad", image.size(),
                   {padding.top + image.height + padding.bottom, padding.left + image.width + padding.right});
  return gather(image, padded(every_place(image.height), padding.top, padding.bottom, border.mode),
                padded(every_place(image.width), padding.left, padding.right, border.mode), border);
}

CenterCrop::CenterCrop(Size size) : size_(size) { require_positive(size, "CenterCrop"); }

CropBox CenterCrop::box_in(Size seen) const {
  const auto middle = [](int have, int want) {
    const int missing = std::max(want - have, 0);
    return int(std::nearbyint((have + missing - want) / 2.0)) - missing / 2;  // half to even, as Python
  };
  return {middle(seen.height, size_.height), middle(seen.width, size_.width), size_};
}

void CenterCrop::apply(Picture& picture, base::RandomStream&) const { see(picture, box_in(picture.size()), {}); }

void CenterCrop::place(Placement& placement, base::RandomStream&) const {
  see(placement, box_in(placement.box.size), {});
}

RandomCrop::RandomCrop(Size size, const RandomCropOptions& options) : size_(size), options_(options) {
  require_positive(size, "RandomCrop");
  require_padding(options.padding, "RandomCrop");
}

// The frames around a picture, and the first row and column of the crop in them.
struct RandomCrop::Drawn {
  Frame rows, columns;
  int top, left;
  CropBox box(Size size) const { return {top - rows.start(), left - columns.start(), size}; }
};

RandomCrop::Drawn RandomCrop::draw(Size seen, base::RandomStream& random) const {
  const auto frame = [this](int before, int have, int after, int wanted) {
    const int missing = wanted - (before + have + after);
    return Frame{before, after, options_.pad_if_needed ? std::max(missing, 0) : 0};
  };
  const Padding& padding = options_.padding;
  const Frame rows = frame(padding.top, seen.height, padding.bottom, size_.height);
  const Frame columns = frame(padding.left, seen.width, padding.right, size_.width);
  const Size whole{rows.length(seen.height), columns.length(seen.width)};
  if (whole.height < size_.height || whole.width < size_.width) {
    throw UsageError("RandomCrop: " + to_string(size_) + " out of a picture of " + to_string(whole) +
                     " (padding included); choose a smaller crop, more padding or pad_if_needed");
  }
  const int top = int(random.below(std::uint32_t(whole.height - size_.height + 1)));
  const int left = int(random.below(std::uint32_t(whole.width - size_.width + 1)));
  return {rows, columns, top, left};
}

void RandomCrop::apply(Picture& picture, base::RandomStream& random) const {
  const Size seen = picture.size();
  const Drawn drawn = draw(seen, random);
  const Border& border = options_.border;
  if (border.mode == PaddingMode::constant) {
    see(picture, drawn.box(size_), border.fill);
  } else {
    const std::vector<int> all_rows = drawn.rows.places(seen.height, border.mode);
    const std::vector<int> all_columns = drawn.columns.places(seen.width, border.mode);
    see(picture, std::span(all_rows).subspan(std::size_t(drawn.top), std::size_t(size_.height)),
        std::span(all_columns).subspan(std::size_t(drawn.left), std::size_t(size_.width)), border);
  }
}

void RandomCrop::place(Placement& placement, base::RandomStream& random) const {
  see(placement, draw(placement.box.size, random).box(size_), options_.border.fill);
}

}  // namespace lockstep::data
