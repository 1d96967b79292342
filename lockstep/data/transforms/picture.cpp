#include "lockstep/data/transforms/picture.h"

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {

Picture Picture::borrowed(const ImageView& view) {
  Picture picture;
  picture.window_ = view;
  return picture;
}

Picture::Picture(std::shared_ptr<const DeferredImage> deferred) : deferred_(std::move(deferred)) {
  const auto [height, width] = deferred_->size();
  window_ = {nullptr, height, width, deferred_->channels(), 0};
}

std::size_t Picture::owned_bytes() const {
  const auto [height, width] = size();
  if (deferred_) return std::size_t(height) * std::size_t(width) * std::size_t(channels());
  return owned_ ? owned_->bytes() : 0;
}

void Picture::make() const {
  ImagePart part = deferred_->part({top_, left_, window_.size()});
  owned_ = std::make_shared<const Image>(std::move(part.image));
  window_ = owned_->view().part(top_ - part.top, left_ - part.left, window_.height, window_.width);
  deferred_.reset();
}

void Picture::crop(int top, int left, Size size) {
  const auto [height, width] = window_.size();
  const bool inside = top >= 0 && left >= 0 && size.height >= 1 && size.width >= 1 && size.height <= height - top &&
                      size.width <= width - left;
  if (!inside) {
    throw UsageError("crop: " + to_string(size) + " from row " + std::to_string(top) + ", column " +
                     std::to_string(left) + " in a picture of " + to_string(window_.size()));
  }
  const int first = mirrored_ ? width - left - size.width : left;
  if (deferred_) {
    top_ += top, left_ += first;
    window_.height = size.height, window_.width = size.width;
  } else {
    window_ = window_.part(top, first, size.height, size.width);
  }
}

const ImageView& Picture::pixels() {
  if (mirrored_) replace(data::mirrored(window()));
  return window();
}

void Picture::replace(Image image) {
  owned_ = std::make_shared<const Image>(std::move(image));
  window_ = owned_->view();
  deferred_.reset();
  mirrored_ = false;
}

Image mirrored(const ImageView& view) {
  Image image(view.size(), view.channels);
  for (int y = 0; y < view.height; ++y) {
    const std::uint8_t* from = view.row(y) + std::ptrdiff_t(view.width) * view.channels;
    std::uint8_t* to = image.row(y);
    for (int x = 0; x < view.width; ++x) {
      from -= view.channels;
      for (int c = 0; c < view.channels; ++c) *to++ = from[c];
    }
  }
  return image;
}

}  // namespace lockstep::data
