#include "lockstep/data/image.h"

#include <cstring>

namespace lockstep::data {

std::string to_string(Size size) { return std::to_string(size.height) + "x" + std::to_string(size.width); }

Image copy_of(const ImageView& view) {
  Image image(view.height, view.width, view.channels);
  for (int y = 0; y < view.height; ++y) std::memcpy(image.row(y), view.row(y), image.row_bytes());
  return image;
}

}  // namespace lockstep::data
