#include "lockstep/data/transforms/geometry.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

void require(const Interval& range, const char* what) {
  if (range.low > 0 && range.low <= range.high) return;
  throw UsageError("RandomResizedCrop: " + std::string(what) + " from " + std::to_string(range.low) + " to " +
                   std::to_string(range.high) + ", 0 < low <= high expected");
}

int rounded(double x) { return int(std::nearbyint(x)); }  // half to even, as Python

CropBox central_crop(Size image, const Interval& ratio) {
  Size size = image;
  const double have = double(image.width) / image.height;
  if (have < ratio.low) size.height = rounded(image.width / ratio.low);
  if (have > ratio.high) size.width = rounded(image.height * ratio.high);
  return {(image.height - size.height) / 2, (image.width - size.width) / 2, size};
}

}  // namespace

Resize::Resize(Size size, Interpolation interpolation) : size_(size), interpolation_(interpolation) {
  if (size.height < 1 || size.width < 1) throw UsageError("Resize: to " + to_string(size) + ", at least 1x1 expected");
}

Resize::Resize(int edge, Interpolation interpolation, std::optional<int> max_size)
    : edge_(edge), max_size_(max_size), interpolation_(interpolation) {
  resized_by_edge({1, 1}, edge, max_size);  // complains about what is wrong at any size
}

void Resize::apply(Picture& picture, base::RandomStream&) const {
  const Size size = size_ ? *size_ : resized_by_edge(picture.size(), edge_, max_size_);
  picture = resized(std::move(picture), size, interpolation_);
}

CropBox choose_crop(Size image, const RandomResizedCropOptions& options, base::RandomStream& random) {
  constexpr int kTries = 10;
  const double area = double(image.height) * image.width;
  const float log_low = std::log(float(options.ratio.low)), log_high = std::log(float(options.ratio.high));
  for (int i = 0; i < kTries; ++i) {
    const double target = area * random.between(float(options.scale.low), float(options.scale.high));
    const double ratio = std::exp(random.between(log_low, log_high));
    const int width = rounded(std::sqrt(target * ratio));
    const int height = rounded(std::sqrt(target / ratio));
    if (width < 1 || width > image.width || height < 1 || height > image.height) continue;
    const int top = int(random.below(std::uint32_t(image.height - height + 1)));
    const int left = int(random.below(std::uint32_t(image.width - width + 1)));
    return {top, left, {height, width}};
  }
  return central_crop(image, options.ratio);
}

RandomResizedCrop::RandomResizedCrop(Size size, const RandomResizedCropOptions& options)
    : size_(size), options_(options) {
  if (size.height < 1 || size.width < 1) {
    throw UsageError("RandomResizedCrop: size " + to_string(size) + ", at least 1x1 expected");
  }
  require(options.scale, "scale");
  require(options.ratio, "ratio");
}

void RandomResizedCrop::apply(Picture& picture, base::RandomStream& random) const {
  const CropBox box = choose_crop(picture.size(), options_, random);
  picture.crop(box.top, box.left, box.size);
  picture.replace(resize(picture.pixels(), size_, options_.interpolation));
}

RandomHorizontalFlip::RandomHorizontalFlip(double p) : p_(p) { require_probability(p, "RandomHorizontalFlip"); }

void RandomHorizontalFlip::apply(Picture& picture, base::RandomStream& random) const {
  if (happens(p_, random)) picture.mirror();
}

void RandomHorizontalFlip::place(Placement& placement, base::RandomStream& random) const {
  if (happens(p_, random)) placement.mirrored = !placement.mirrored;
}

Image upside_down(const ImageView& image) {
  Image out(image.size(), image.channels);
  for (int y = 0; y < image.height; ++y) std::memcpy(out.row(y), image.row(image.height - 1 - y), out.row_bytes());
  return out;
}

RandomVerticalFlip::RandomVerticalFlip(double p) : p_(p) { require_probability(p, "RandomVerticalFlip"); }

void RandomVerticalFlip::apply(Picture& picture, base::RandomStream& random) const {
  if (happens(p_, random)) picture.replace(upside_down(picture.pixels()));
}

Image to_grey(const ImageView& image) {
  if (image.channels == 1) return copy_of(image);
  Image grey(image.size(), 1);
  for (int y = 0; y < image.height; ++y) {
    const std::uint8_t* from = image.row(y);
    for (int x = 0; x < image.width; ++x, from += 3) {
      grey.row(y)[x] = std::uint8_t((from[0] * 19595 + from[1] * 38470 + from[2] * 7471 + (1 << 15)) >> 16);
    }
  }
  return grey;
}

Image to_grey(const ImageView& image, int channels) {
  Image grey = to_grey(image);
  if (channels == 1) return grey;
  Image three(grey.size(), 3);
  for (std::size_t i = 0; i < grey.bytes(); ++i) std::fill_n(three.row(0) + 3 * i, 3, grey.row(0)[i]);
  return three;
}

Grayscale::Grayscale(int channels) : channels_(channels) {
  if (channels != 1 && channels != 3) {
    throw UsageError("Grayscale: " + std::to_string(channels) + " channels, 1 or 3 expected");
  }
}

void Grayscale::apply(Picture& picture, base::RandomStream&) const {
  picture.replace(to_grey(picture.pixels(), channels_));
}

}  // namespace lockstep::data
