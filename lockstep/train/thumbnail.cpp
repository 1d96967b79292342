#include "lockstep/train/thumbnail.h"

#include <algorithm>

#include "lockstep/data/transforms/resize.h"
#include "lockstep/metrics/summary.h"

namespace lockstep::train {
namespace {

// A strip keeps one pixel at least.
int scaled(int side, int longest) { return std::max(1, int(std::int64_t(side) * kThumbnailSide / longest)); }

}  // namespace

std::string thumbnail(data::Picture picture) {
  const data::Size size = picture.size();
  if (const int longest = std::max(size.height, size.width); longest > kThumbnailSide)
    picture.replace(data::resize(picture.pixels(), {scaled(size.height, longest), scaled(size.width, longest)}));
  const data::ImageView& view = picture.pixels();
  metrics::Pixels pixels{.height = view.height, .width = view.width, .channels = view.channels, .values = {}};
  for (int row = 0; row < view.height; ++row)
    pixels.values.insert(pixels.values.end(), view.row(row),
                         view.row(row) + std::ptrdiff_t(view.width) * view.channels);
  return metrics::png_file(pixels);
}

}  // namespace lockstep::train
