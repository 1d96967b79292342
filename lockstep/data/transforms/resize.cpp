#include "lockstep/data/transforms/resize.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/pixel_kernels.h"
#include "lockstep/data/transforms/transpose.h"

namespace lockstep::data {
namespace {

// Where a pass writes to.
struct Rows {
  std::uint8_t* pixels;
  std::ptrdiff_t row_bytes;
};

Rows rows_of(Image& image) { return {image.row(0), std::ptrdiff_t(image.row_bytes())}; }

// Along the rows of `image`: in blocks of 16 rows on their side, so that the weighted sums of a block
// are sums of its lines.
void resample_rows(const ImageView& image, const ResamplePlan& plan, Rows out) {
  const int rows = std::min(kBlockRows, image.height);
  const std::size_t line = std::size_t(image.channels) * std::size_t(rows);
  const std::size_t in_bytes = std::size_t(image.width) * std::size_t(image.channels);
  const std::size_t out_bytes = plan.ranges.size() * std::size_t(image.channels);
  const PixelMemory standing = pixel_memory(in_bytes * std::size_t(rows));
  const PixelMemory resampled = pixel_memory(out_bytes * std::size_t(rows));
  const auto blend = pixel_kernels().blend;
  for (int y = 0; y < image.height; y += rows) {
    const int top = std::min(y, image.height - rows);  // the last block may repeat some rows
    stand_up(image.row(top), image.row_bytes, rows, in_bytes, standing.get());
    for (std::size_t x = 0; x < plan.ranges.size(); ++x) {
      const auto [first, taps] = plan.ranges[x];
      const std::uint8_t* from = standing.get() + std::size_t(first) * line;
      blend({plan.weights_of(int(x)), taps, from, std::ptrdiff_t(line)}, resampled.get() + x * line, line);
    }
    lay_down(resampled.get(), out_bytes, rows, out.pixels + top * out.row_bytes, out.row_bytes);
  }
}

void resample_columns(const ImageView& image, const ResamplePlan& plan, Rows out) {
  const auto blend = pixel_kernels().blend;
  const std::size_t count = std::size_t(image.width) * std::size_t(image.channels);
  for (std::size_t y = 0; y < plan.ranges.size(); ++y) {
    const auto [first, taps] = plan.ranges[y];
    const Blend sum{plan.weights_of(int(y)), taps, image.row(first), image.row_bytes};
    blend(sum, out.pixels + std::ptrdiff_t(y) * out.row_bytes, count);
  }
}

// One direction of a picture: how its lines are scaled, and which of the new samples are wanted.
struct Axis {
  Scaling scaling;
  Stretch wanted;

  bool changes() const { return scaling.to != scaling.from || scaling.begin != 0 || scaling.end != float(scaling.to); }
};

// What a plan reads; its ranges then count from the first of it.
Stretch narrow(ResamplePlan& plan) {
  const int first = plan.ranges.front().first;
  const int end = plan.ranges.back().first + plan.ranges.back().taps;
  for (ResamplePlan::Range& range : plan.ranges) range.first -= first;
  return {first, end - first};
}

// The same of nearest neighbours; there may be none.
Stretch narrow(std::vector<int>& places) {
  const auto inside = [](int place) { return place >= 0; };
  const auto begin = std::ranges::find_if(places, inside);
  if (begin == places.end()) return {0, 1};
  const int first = *begin, last = *std::find_if(places.rbegin(), places.rend(), inside);
  for (int& place : places) place = std::max(place - first, -1);
  return {first, last - first + 1};
}

CropBox box_of(Stretch rows, Stretch columns) { return {rows.first, columns.first, {rows.count, columns.count}}; }

// Both directions; what is between them is rounded to 8 bits, so their order shows.
void resample_both(const ImageView& source, const ResamplePlan& across, const ResamplePlan& down, bool down_first,
                   Image& out) {
  if (down_first) {
    Image between(out.height(), source.width, source.channels);
    resample_columns(source, down, rows_of(between));
    resample_rows(between.view(), across, rows_of(out));
  } else {
    Image between(source.height, out.width(), source.channels);
    resample_rows(source, across, rows_of(between));
    resample_columns(between.view(), down, rows_of(out));
  }
}

// Leaves out a direction in which nothing changes, as Pillow does.
Image resample(const Axis& across, const Axis& down, const Resizing& resizing, const SourcePixels& pixels) {
  std::optional<ResamplePlan> columns_plan, rows_plan;
  Stretch columns = across.wanted, rows = down.wanted;
  if (across.changes()) {
    columns_plan = plan_resample(across.scaling, across.wanted, resizing.interpolation);
    columns = narrow(*columns_plan);
  }
  if (down.changes()) {
    rows_plan = plan_resample(down.scaling, down.wanted, resizing.interpolation);
    rows = narrow(*rows_plan);
  }
  const ImageView source = pixels(box_of(rows, columns));
  if (!columns_plan && !rows_plan) return copy_of(source);
  Image out(down.wanted.count, across.wanted.count, source.channels);
  if (!rows_plan) {
    resample_rows(source, *columns_plan, rows_of(out));
  } else if (!columns_plan) {
    resample_columns(source, *rows_plan, rows_of(out));
  } else {
    resample_both(source, *columns_plan, *rows_plan, columns_first(resizing.from, resizing.to), out);
  }
  return out;
}

Image resize_nearest(const Axis& across, const Axis& down, const SourcePixels& pixels) {
  std::vector<int> columns = plan_nearest(across.scaling, across.wanted);
  std::vector<int> rows = plan_nearest(down.scaling, down.wanted);
  const Stretch needed_columns = narrow(columns), needed_rows = narrow(rows);
  const ImageView source = pixels(box_of(needed_rows, needed_columns));
  Image out(down.wanted.count, across.wanted.count, source.channels);
  const auto channels = std::size_t(source.channels);
  std::memset(out.row(0), 0, out.bytes());
  for (int y = 0; y < out.height(); ++y) {
    if (rows[std::size_t(y)] < 0) continue;
    const std::uint8_t* from = source.row(rows[std::size_t(y)]);
    std::uint8_t* to = out.row(y);
    for (const int x : columns) {
      if (x >= 0) std::memcpy(to, from + std::size_t(x) * channels, channels);
      to += channels;
    }
  }
  return out;
}

void require_positive(Size size) {
  if (size.height < 1 || size.width < 1) throw UsageError("resize: to " + to_string(size) + ", at least 1x1 expected");
}

Box whole(Size size) { return {0, 0, float(size.width), float(size.height)}; }

class ResizedPicture : public DeferredImage {
 public:
  ResizedPicture(Picture source, Size size, Interpolation interpolation)
      : source_(std::move(source)), resizing_{source_.size(), whole(source_.size()), size, interpolation} {}

  Size size() const override { return resizing_.to; }
  int channels() const override { return source_.channels(); }

  ImagePart part(const CropBox& wanted) const override {
    Picture source = source_;  // several threads may ask
    const auto pixels = [&](const CropBox& box) {
      source.crop(box.top, box.left, box.size);
      return source.pixels();
    };
    return {resize_part(resizing_, wanted, pixels), wanted.top, wanted.left};
  }

 private:
  Picture source_;
  Resizing resizing_;
};

}  // namespace

Image resize_part(const Resizing& resizing, const CropBox& wanted, const SourcePixels& source) {
  const auto& [from, box, to, interpolation] = resizing;
  require_possible("resize", from, wanted.size);
  const Axis across{{from.width, box.left, box.right, to.width}, {wanted.left, wanted.size.width}};
  const Axis down{{from.height, box.top, box.bottom, to.height}, {wanted.top, wanted.size.height}};
  return interpolation == Interpolation::nearest ? resize_nearest(across, down, source)
                                                 : resample(across, down, resizing, source);
}

Image resize(const ImageView& image, Size size, Interpolation interpolation, const Box& box) {
  require_positive(size);
  const bool inside = box.left >= 0 && box.top >= 0 && box.right <= float(image.width) &&
                      box.bottom <= float(image.height) && box.left < box.right && box.top < box.bottom;
  if (!inside) {
    throw UsageError("resize: box from (" + std::to_string(box.left) + ", " + std::to_string(box.top) + ") to (" +
                     std::to_string(box.right) + ", " + std::to_string(box.bottom) + ") in a picture of " +
                     to_string(image.size()));
  }
  return resize_part({image.size(), box, size, interpolation}, {0, 0, size}, [&](const CropBox& part) {
    return image.part(part.top, part.left, part.size.height, part.size.width);
  });
}

Image resize(const ImageView& image, Size size, Interpolation interpolation) {
  return resize(image, size, interpolation, whole(image.size()));
}

Picture resized(Picture picture, Size size, Interpolation interpolation) {
  require_positive(size);
  if (size == picture.size()) return picture;
  return Picture(std::make_shared<const ResizedPicture>(std::move(picture), size, interpolation));
}

Size resized_by_edge(Size image, int edge, std::optional<int> max_size) {
  if (edge < 1) throw UsageError("resize: to an edge of " + std::to_string(edge) + ", at least 1 expected");
  if (max_size && *max_size <= edge) {
    throw UsageError("resize: max_size " + std::to_string(*max_size) + ", more than the edge of " +
                     std::to_string(edge) + " expected");
  }
  const bool upright = image.width <= image.height;
  const int shorter = upright ? image.width : image.height;
  const int longer = upright ? image.height : image.width;
  // As Python: the quotient of two integers is a float, int() cuts it off.
  int new_short = edge;
  auto new_long = std::int64_t(double(std::int64_t(edge) * longer) / shorter);
  if (max_size && new_long > *max_size) {
    new_short = int(double(std::int64_t(*max_size) * new_short) / double(new_long));
    new_long = *max_size;
  }
  if (new_long > std::numeric_limits<int>::max()) {
    throw UsageError("resize: a picture of " + to_string(image) + " to an edge of " + std::to_string(edge) +
                     ", which makes the other one " + std::to_string(new_long) + "; choose a max_size");
  }
  return upright ? Size{int(new_long), new_short} : Size{new_short, int(new_long)};
}

}  // namespace lockstep::data
