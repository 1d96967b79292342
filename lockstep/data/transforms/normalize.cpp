#include "lockstep/data/transforms/normalize.h"

#include <cstring>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/bfloat16.h"
#include "lockstep/data/transforms/crop.h"

namespace lockstep::data {
namespace {

double of_channel(const std::vector<double>& values, std::size_t channel, const char* what) {
  if (values.size() != 1 && values.size() != 3) {
    throw UsageError("Normalize: " + std::to_string(values.size()) + " numbers for the " + what + ", 1 or 3 expected");
  }
  return values.size() == 1 ? values[0] : values[channel];
}

// Where a row of the picture begins and which way it is read.
struct Reading {
  std::ptrdiff_t first;  // byte of the first pixel
  std::ptrdiff_t step;   // bytes to the next one
};

Reading reading(const Picture& picture) {
  const std::ptrdiff_t channels = picture.channels();
  if (!picture.mirrored()) return {0, channels};
  return {(picture.size().width - 1) * channels, -channels};
}

template <class T>
void write_planes(const Picture& picture, const std::array<std::array<T, 256>, 3>& table, T* out) {
  const ImageView& window = picture.window();
  const auto [first, step] = reading(picture);
  for (int c = 0; c < window.channels; ++c) {
    const std::array<T, 256>& values = table[std::size_t(c)];
    for (int y = 0; y < window.height; ++y) {
      const std::uint8_t* pixel = window.row(y) + first + c;
      for (int x = 0; x < window.width; ++x) out[x] = values[pixel[x * step]];
      out += window.width;
    }
  }
}

template <class T>
void write_pixels(const Picture& picture, const std::array<std::array<T, 256>, 3>& table, T* out) {
  const ImageView& window = picture.window();
  const auto [first, step] = reading(picture);
  for (int y = 0; y < window.height; ++y) {
    const std::uint8_t* pixel = window.row(y) + first;
    for (int x = 0; x < window.width; ++x, pixel += step) {
      for (int c = 0; c < window.channels; ++c) *out++ = table[std::size_t(c)][pixel[c]];
    }
  }
}

std::size_t bytes_of(PixelType type) {
  if (type == PixelType::uint8) return sizeof(std::uint8_t);
  return type == PixelType::float32 ? sizeof(float) : sizeof(std::uint16_t);
}

template <class T>
void write_as(PixelLayout layout, const Picture& picture, const std::array<std::array<T, 256>, 3>& table, void* slot) {
  if (layout == PixelLayout::planes) {
    write_planes(picture, table, static_cast<T*>(slot));
  } else {
    write_pixels(picture, table, static_cast<T*>(slot));
  }
}

}  // namespace

Normalize::Normalize(const NormalizeOptions& options) : layout_(options.layout), type_(options.type) {
  for (std::size_t c = 0; c < 3; ++c) {
    const float mean = float(of_channel(options.mean, c, "mean")), std = float(of_channel(options.std, c, "std"));
    if (!(std != 0)) throw UsageError("Normalize: a std of " + std::to_string(std) + ", another number expected");
    for (std::size_t pixel = 0; pixel < 256; ++pixel) {
      floats_[c][pixel] = (float(pixel) / 255.0f - mean) / std;
      halves_[c][pixel] = to_bfloat16(floats_[c][pixel]);
      pixels_[c][pixel] = std::uint8_t(pixel);
    }
    standards_[c] = {mean, Inverse::of(std)};
  }
  by_kernel_ = layout_ == PixelLayout::planes && type_ == PixelType::float32 && kernel_is_exact();
}

// The kernel's quotients are right for most divisors: for these three it is seen here.
bool Normalize::kernel_is_exact() const {
  const auto by_kernel = pixel_kernels().normalize;
  if (by_kernel == nullptr) return false;
  std::array<std::uint8_t, 256> pixels;
  for (int pixel = 0; pixel < 256; ++pixel) pixels[std::size_t(pixel)] = std::uint8_t(pixel);
  for (std::size_t c = 0; c < 3; ++c) {
    std::array<float, 256> numbers;
    by_kernel({{pixels.data(), 1, 256, 1, 256}, false, &standards_[c]}, numbers.data());
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are the question
    if (std::memcmp(numbers.data(), floats_[c].data(), sizeof numbers) != 0) return false;
  }
  return true;
}

std::size_t Slot::bytes() const {
  return std::size_t(size.height) * std::size_t(size.width) * std::size_t(channels) * bytes_of(type);
}

void Slot::set(int channel, int row, int column, float value) const {
  const std::ptrdiff_t pixel = std::ptrdiff_t(row) * size.width + column;
  const std::ptrdiff_t place = layout == PixelLayout::planes
                                   ? std::ptrdiff_t(channel) * size.height * size.width + pixel
                                   : pixel * channels + channel;
  if (type == PixelType::float32) {
    static_cast<float*>(data)[place] = value;
  } else if (type == PixelType::bfloat16) {
    static_cast<std::uint16_t*>(data)[place] = to_bfloat16(value);
  } else {
    static_cast<std::uint8_t*>(data)[place] = std::uint8_t(value);
  }
}

void Normalize::write(const Picture& picture, const Slot& slot) const {
  if (by_kernel_ && picture.size().width >= kNormalizeWidth) {
    const NormalizePicture what{picture.window(), picture.mirrored(), standards_.data()};
    pixel_kernels().normalize(what, static_cast<float*>(slot.data));
  } else if (type_ == PixelType::float32) {
    write_as(layout_, picture, floats_, slot.data);
  } else if (type_ == PixelType::bfloat16) {
    write_as(layout_, picture, halves_, slot.data);
  } else {
    write_as(layout_, picture, pixels_, slot.data);
  }
}

void Normalize::write(const ImageView& pixels, const Placement& placement, const Slot& slot) const {
  const auto& [box, fill, mirrored] = placement;
  const bool is_within = box.top >= 0 && box.left >= 0 && box.size.height <= pixels.height - box.top &&
                         box.size.width <= pixels.width - box.left;
  if (by_kernel_ && !is_within && box.size.width >= kNormalizeWidth) {
    const NormalizePicture what{pixels, mirrored, standards_.data()};
    return pixel_kernels().normalize_framed(what, {box, fill}, static_cast<float*>(slot.data));
  }
  Picture picture =
      Picture::borrowed(is_within ? pixels.part(box.top, box.left, box.size.height, box.size.width) : pixels);
  if (!is_within) see(picture, box, fill);
  if (mirrored) picture.mirror();
  write(picture, slot);
}

}  // namespace lockstep::data
