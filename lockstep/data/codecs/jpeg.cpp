#include "lockstep/data/codecs/jpeg.h"

#include <jpeglib.h>  // needs FILE and size_t before it

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/data/codecs/damage.h"

namespace lockstep::data {
namespace {

// A progressive file may hold any number of scans, each costing a pass over the whole image.
constexpr int kMaxScans = 500;

// libjpeg reports a fatal error by a call that must not return: it jumps back to guarded(). Only
// libjpeg's own frames and lambdas without destructors lie between, so the jump leaves nothing undone.
class Decoder {
 public:
  Decoder(std::span<const std::uint8_t> bytes, const std::string& name) : bytes_(bytes), name_(name) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { std::longjmp(of(info).jump_, 1); };
    errors_.output_message = [](j_common_ptr) {};
    info_.client_data = this;
    guarded([this] { jpeg_create_decompress(&info_); });
    source_.next_input_byte = bytes.data();
    source_.bytes_in_buffer = bytes.size();
    source_.init_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = [](j_decompress_ptr) -> boolean { return FALSE; };  // there is no more: suspend
    source_.skip_input_data = skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = [](j_decompress_ptr) {};
    info_.src = &source_;
    progress_.progress_monitor = [](j_common_ptr info) { of(info).check_scans(); };
    info_.progress = &progress_;
  }
  Decoder(const Decoder&) = delete;
  ~Decoder() { jpeg_destroy_decompress(&info_); }

  Image decode() {
    bool whole = false;
    guarded([&] { whole = jpeg_read_header(&info_, TRUE) == JPEG_HEADER_OK; });
    if (!whole) truncated();
    choose_output();
    guarded([&] { whole = jpeg_start_decompress(&info_); });
    if (!whole) truncated();
    Image image(int(info_.output_height), int(info_.output_width), 3);
    if (info_.out_color_space == JCS_CMYK) {
      read_cmyk(image);
    } else {
      guarded([&] { whole = read_rows(image); });
      if (!whole) truncated();
    }
    guarded([&] { whole = jpeg_finish_decompress(&info_); });
    if (!whole) truncated();
    return image;
  }

 private:
  static Decoder& of(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }

  static void skip(j_decompress_ptr info, long count) {
    jpeg_source_mgr& source = *info->src;
    const std::size_t step = std::min(source.bytes_in_buffer, std::size_t(std::max(count, 0L)));
    source.next_input_byte += step;
    source.bytes_in_buffer -= step;
  }

  void check_scans() {
    if (info_.input_scan_number <= kMaxScans) return;
    too_many_scans_ = true;
    std::longjmp(jump_, 1);
  }

  template <class Step>
  void guarded(Step step) {
    if (setjmp(jump_) == 0) {
      step();
    } else {
      damaged();
    }
  }

  [[noreturn]] void damaged() {
    if (too_many_scans_) refuse(name_, "JPEG with more than " + std::to_string(kMaxScans) + " scans", offset(), size());
    char message[JMSG_LENGTH_MAX];
    errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), message);
    refuse(name_, "damaged JPEG (" + std::string(message) + ")", offset(), size());
  }

  [[noreturn]] void truncated() const { refuse(name_, "truncated: JPEG data end early", offset(), size()); }

  std::size_t size() const { return bytes_.size(); }
  std::size_t offset() const { return bytes_.size() - source_.bytes_in_buffer; }

  void choose_output() {
    // Huffman codes spend a bit on each block at least; arithmetic coding has no such bound.
    const std::int64_t block_pixels = std::int64_t(info_.max_h_samp_factor) * info_.max_v_samp_factor * DCTSIZE2;
    const std::int64_t room =
        info_.arith_code ? std::numeric_limits<std::int64_t>::max() : std::int64_t(size()) * 8 * block_pixels;
    check_size(name_, info_.image_width, info_.image_height, room);
    const int components = info_.num_components;
    if (components != 1 && components != 3 && components != 4) {
      throw UsageError("'" + name_ + "': JPEG with " + std::to_string(components) + " components, 1, 3 or 4 expected");
    }
    info_.out_color_space = components == 4 ? JCS_CMYK : JCS_RGB;
  }

  bool read_rows(Image& image) {
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = image.row(int(info_.output_scanline));
      if (jpeg_read_scanlines(&info_, &row, 1) != 1) return false;
    }
    return true;
  }

  void read_cmyk(Image& image) {
    Image row(1, image.width(), 4);
    JSAMPROW cmyk = row.row(0);
    while (info_.output_scanline < info_.output_height) {
      std::uint8_t* rgb = image.row(int(info_.output_scanline));
      bool whole = false;
      guarded([&] { whole = jpeg_read_scanlines(&info_, &cmyk, 1) == 1; });
      if (!whole) truncated();
      for (int x = 0; x < image.width(); ++x) to_rgb(cmyk + 4 * x, rgb + 3 * x);
    }
  }

  // Pillow's integer formula on inverted inks: light = (255 − K) − C (255 − K) / 255, rounded.
  static void to_rgb(const std::uint8_t* inverted, std::uint8_t* rgb) {
    const int white = inverted[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - inverted[c]) * white + 128;
      rgb[c] = std::uint8_t(std::max(white - (((product >> 8) + product) >> 8), 0));
    }
  }

  std::span<const std::uint8_t> bytes_;
  const std::string& name_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf jump_;
  bool too_many_scans_ = false;
};

}  // namespace

Image decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& name) {
  return Decoder(bytes, name).decode();
}

}  // namespace lockstep::data
