#include "lockstep/data/image.h"

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::data {

std::string to_string(Size size) { return std::to_string(size.height) + "x" + std::to_string(size.width); }

void require_possible(const char* what, Size from, Size to) {
  if (std::int64_t(to.height) * to.width <= kMaxPixels) return;
  throw UsageError(std::string(what) + ": a picture of " + to_string(from) + " to " + to_string(to) + ", at most " +
                   std::to_string(kMaxPixels) + " pixels are made; choose a smaller size or crop it");
}

Image copy_of(const ImageView& view) {
  Image image(view.height, view.width, view.channels);
  for (int y = 0; y < view.height; ++y) std::memcpy(image.row(y), view.row(y), image.row_bytes());
  return image;
}

}  // namespace lockstep::data
