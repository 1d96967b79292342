#include "lockstep/data/transforms/resize.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/pixel_kernels.h"
#include "lockstep/data/transforms/transpose.h"

namespace lockstep::data {
namespace {

// Memory that stays with its thread: taking and returning it at every picture would cost page faults.
class Scratch {
 public:
  std::uint8_t* get(std::size_t bytes) {
    if (bytes > bytes_) {
      memory_ = std::make_unique_for_overwrite<std::uint8_t[]>(bytes);
      bytes_ = bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<std::uint8_t[]> memory_;
  std::size_t bytes_ = 0;
};

// Where a pass writes to.
struct Rows {
  std::uint8_t* pixels;
  std::ptrdiff_t row_bytes;
};

Rows rows_of(Image& image) { return {image.row(0), std::ptrdiff_t(image.row_bytes())}; }

// Along the rows of `image`: in blocks of 16 rows on their side, so that the weighted sums of a block
// are sums of its lines.
void resample_rows(const ImageView& image, const ResamplePlan& plan, Rows out) {
  thread_local Scratch standing, resampled;
  const std::size_t line = std::size_t(image.channels) * kBlockRows;
  const std::size_t in_bytes = std::size_t(image.width) * std::size_t(image.channels);
  const std::size_t out_bytes = plan.ranges.size() * std::size_t(image.channels);
  std::uint8_t* const in_block = standing.get(in_bytes * kBlockRows);
  std::uint8_t* const out_block = resampled.get(out_bytes * kBlockRows);
  if (image.height < kBlockRows) std::memset(in_block, 0, in_bytes * kBlockRows);
  const auto blend = pixel_kernels().blend;
  for (int y = 0; y < image.height; y += kBlockRows) {
    const int top = std::max(std::min(y, image.height - kBlockRows), 0);  // the last block may repeat some rows
    const int rows = std::min(kBlockRows, image.height - top);
    stand_up(image.row(top), image.row_bytes, rows, in_bytes, in_block);
    for (std::size_t x = 0; x < plan.ranges.size(); ++x) {
      const auto [first, taps] = plan.ranges[x];
      const std::uint8_t* from = in_block + std::size_t(first) * line;
      blend({plan.weights_of(int(x)), taps, from, std::ptrdiff_t(line)}, out_block + x * line, line);
    }
    lay_down(out_block, out_bytes, rows, out.pixels + top * out.row_bytes, out.row_bytes);
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

// The rows (or columns) that a plan reads; its ranges then count from the first of them.
struct Stretch {
  int first;
  int count;
};

Stretch narrow(ResamplePlan& plan) {
  const int first = plan.ranges.front().first;
  const int end = plan.ranges.back().first + plan.ranges.back().taps;
  for (ResamplePlan::Range& range : plan.ranges) range.first -= first;
  return {first, end - first};
}

// Both directions; what is between them is rounded to 8 bits, so their order shows.
void resample_both(const ImageView& image, ResamplePlan across, ResamplePlan down, Image& out) {
  thread_local Scratch memory;
  const Stretch columns = narrow(across), rows = narrow(down);
  const ImageView needed = image.part(rows.first, columns.first, rows.count, columns.count);
  const bool down_first = columns_first(image.size(), out.size());
  const int height = down_first ? out.height() : needed.height;
  const int width = down_first ? needed.width : out.width();
  const std::ptrdiff_t row_bytes = std::ptrdiff_t(width) * image.channels;
  const Rows between{memory.get(std::size_t(height) * std::size_t(row_bytes)), row_bytes};
  const ImageView half_done{between.pixels, height, width, image.channels, row_bytes};
  if (down_first) {
    resample_columns(needed, down, between);
    resample_rows(half_done, across, rows_of(out));
  } else {
    resample_rows(needed, across, between);
    resample_columns(half_done, down, rows_of(out));
  }
}

// Leaves out a direction in which nothing changes, as Pillow does.
Image resample(const ImageView& image, Size size, Interpolation interpolation, const Box& box) {
  const bool rows = size.width != image.width || box.left != 0 || box.right != float(size.width);
  const bool columns = size.height != image.height || box.top != 0 || box.bottom != float(size.height);
  if (!rows && !columns) return copy_of(image);
  Image out(size, image.channels);
  const auto across = [&] { return plan_resample(image.width, box.left, box.right, size.width, interpolation); };
  const auto down = [&] { return plan_resample(image.height, box.top, box.bottom, size.height, interpolation); };
  if (!columns) {
    resample_rows(image, across(), rows_of(out));
  } else if (!rows) {
    resample_columns(image, down(), rows_of(out));
  } else {
    resample_both(image, across(), down(), out);
  }
  return out;
}

Image resize_nearest(const ImageView& image, Size size, const Box& box) {
  Image out(size, image.channels);
  const std::vector<int> columns = plan_nearest(image.width, box.left, box.right, size.width);
  const std::vector<int> rows = plan_nearest(image.height, box.top, box.bottom, size.height);
  const auto channels = std::size_t(image.channels);
  std::memset(out.row(0), 0, out.bytes());
  for (int y = 0; y < size.height; ++y) {
    if (rows[std::size_t(y)] < 0) continue;
    const std::uint8_t* from = image.row(rows[std::size_t(y)]);
    std::uint8_t* to = out.row(y);
    for (const int x : columns) {
      if (x >= 0) std::memcpy(to, from + std::size_t(x) * channels, channels);
      to += channels;
    }
  }
  return out;
}

}  // namespace

Image resize(const ImageView& image, Size size, Interpolation interpolation, const Box& box) {
  if (size.height < 1 || size.width < 1) throw UsageError("resize: to " + to_string(size) + ", at least 1x1 expected");
  const bool inside = box.left >= 0 && box.top >= 0 && box.right <= float(image.width) &&
                      box.bottom <= float(image.height) && box.left < box.right && box.top < box.bottom;
  if (!inside) {
    throw UsageError("resize: box from (" + std::to_string(box.left) + ", " + std::to_string(box.top) + ") to (" +
                     std::to_string(box.right) + ", " + std::to_string(box.bottom) + ") in a picture of " +
                     to_string(image.size()));
  }
  return interpolation == Interpolation::nearest ? resize_nearest(image, size, box)
                                                 : resample(image, size, interpolation, box);
}

Image resize(const ImageView& image, Size size, Interpolation interpolation) {
  return resize(image, size, interpolation, {0, 0, float(image.width), float(image.height)});
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
  int new_long = int(double(std::int64_t(edge) * longer) / shorter);
  if (max_size && new_long > *max_size) {
    new_short = int(double(std::int64_t(*max_size) * new_short) / new_long);
    new_long = *max_size;
  }
  return upright ? Size{new_long, new_short} : Size{new_short, new_long};
}

}  // namespace lockstep::data
