#include "lockstep/data/codecs/png.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <memory>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/codecs/damage.h"

namespace lockstep::data {
namespace {

using Color = std::array<std::uint8_t, 3>;

// libpng checks, inflates, unfilters and de-interlaces; what the samples mean is decided here, as
// Pillow does. Its fatal errors jump back to guarded(), over libpng's frames and lambdas without
// destructors only.
class PngDecoder {
 public:
  PngDecoder(std::span<const std::uint8_t> bytes, const std::string& name) : bytes_(bytes), name_(name) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
    info_ = png_ ? png_create_info_struct(png_) : nullptr;
    if (!info_) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw Error("libpng cannot start");
    }
    png_set_read_fn(png_, this, on_read);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);             // check_size() decides
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // text, profiles: not even inflated
  }
  PngDecoder(const PngDecoder&) = delete;
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }

  Image decode() {
    guarded([this] { png_read_info(png_, info_); });
    const std::int64_t width = png_get_image_width(png_, info_), height = png_get_image_height(png_, info_);
    depth_ = png_get_bit_depth(png_, info_);
    samples_ = png_get_channels(png_, info_);
    // Deflate never packs better than 1032 to 1.
    check_size(name_, width, height, std::int64_t(bytes_.size()) * 1032 * 8 / (depth_ * samples_));
    const int passes = prepare();
    Image image(int(height), int(width), 3);
    if (passes > 1) {
      read_interlaced(image, passes);
    } else {
      std::vector<std::uint8_t> row(row_bytes_);
      for (int y = 0; y < image.height(); ++y) {
        guarded([&] { png_read_row(png_, row.data(), nullptr); });
        to_rgb(row.data(), image.row(y), image.width());
      }
    }
    return image;
  }

 private:
  static PngDecoder& of(png_structp png) { return *static_cast<PngDecoder*>(png_get_error_ptr(png)); }

  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    PngDecoder& decoder = of(png);
    std::strncpy(decoder.message_.data(), message, decoder.message_.size() - 1);
    std::longjmp(decoder.jump_, 1);
  }

  static void on_read(png_structp png, png_bytep out, std::size_t count) {
    PngDecoder& decoder = of(png);
    if (count > decoder.bytes_.size() - decoder.offset_) {
      decoder.truncated_ = true;
      decoder.offset_ = decoder.bytes_.size();
      std::longjmp(decoder.jump_, 1);
    }
    std::memcpy(out, decoder.bytes_.data() + decoder.offset_, count);
    decoder.offset_ += count;
  }

  template <class Step>
  void guarded(Step step) {
    if (setjmp(jump_) == 0) {
      step();
    } else {
      damaged();
    }
  }

  [[noreturn]] void damaged() const {
    const std::string what =
        truncated_ ? "truncated: PNG data end early" : "damaged PNG (" + std::string(message_.data()) + ")";
    refuse(name_, what, offset_, bytes_.size());
  }

  // Asks libpng for whole bytes per sample and fills in the meaning of one-sample pixels.
  int prepare() {
    int passes = 1;
    guarded([&] {
      png_set_packing(png_);
      passes = png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
      row_bytes_ = png_get_rowbytes(png_, info_);
    });
    if (png_get_color_type(png_, info_) == PNG_COLOR_TYPE_PALETTE) {
      fill_palette();
    } else if (depth_ < 8) {
      const int top = (1 << depth_) - 1;
      for (int value = 0; value <= top; ++value) colors_[value].fill(std::uint8_t(value * 255 / top));
    } else {
      for (int value = 0; value < 256; ++value) colors_[value].fill(std::uint8_t(value));
    }
    return passes;
  }

  void fill_palette() {
    png_colorp palette = nullptr;
    int count = 0;
    png_get_PLTE(png_, info_, &palette, &count);
    for (int i = 0; i < count; ++i) colors_[i] = {palette[i].red, palette[i].green, palette[i].blue};
  }

  void read_interlaced(Image& image, int passes) {
    const auto raw = std::make_unique_for_overwrite<std::uint8_t[]>(row_bytes_ * std::size_t(image.height()));
    guarded([&] {
      for (int pass = 0; pass < passes; ++pass) {
        for (int y = 0; y < image.height(); ++y) png_read_row(png_, raw.get() + std::size_t(y) * row_bytes_, nullptr);
      }
    });
    for (int y = 0; y < image.height(); ++y) {
      to_rgb(raw.get() + std::size_t(y) * row_bytes_, image.row(y), image.width());
    }
  }

  void to_rgb(const std::uint8_t* row, std::uint8_t* rgb, int width) const {
    const int sample_bytes = depth_ == 16 ? 2 : 1;
    const int pixel_bytes = samples_ * sample_bytes;
    for (int x = 0; x < width; ++x, row += pixel_bytes, rgb += 3) {
      if (samples_ >= 3) {
        for (int c = 0; c < 3; ++c) rgb[c] = row[c * sample_bytes];
      } else {
        const bool over = samples_ == 1 && depth_ == 16 && row[0] != 0;
        const std::uint8_t value = over ? 255 : samples_ == 1 ? row[sample_bytes - 1] : row[0];
        std::copy_n(colors_[value].data(), 3, rgb);
      }
    }
  }

  std::span<const std::uint8_t> bytes_;
  const std::string& name_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::size_t offset_ = 0;
  bool truncated_ = false;
  std::array<char, 128> message_{};
  std::jmp_buf jump_;

  int depth_ = 0;    // bits of a sample in the file
  int samples_ = 0;  // of a pixel
  std::size_t row_bytes_ = 0;
  std::array<Color, 256> colors_{};  // of one-sample pixels: grey steps or the palette, black where it has none
};

}  // namespace

Image decode_png(std::span<const std::uint8_t> bytes, const std::string& name) {
  return PngDecoder(bytes, name).decode();
}

}  // namespace lockstep::data
