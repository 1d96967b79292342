#include "lockstep/data/codecs/jpeg.h"

#include <jpeglib.h>  // needs FILE and size_t before it

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/data/codecs/damage.h"
#include "lockstep/data/decode_time.h"

namespace lockstep::data {
namespace {

// A progressive file may hold any number of scans, each costing a pass over the whole image.
constexpr int kMaxScans = 500;

// Arithmetic codes spend next to nothing on what is expected: a scan of millions of pixels may take ten bytes. A file
// may have so many pixels, those of all its scans together, for each of its bytes, which is twice what pictures of one
// colour need; small files so many that take the blink of an eye.
constexpr std::int64_t kArithmeticPixelsPerByte = 8192;
constexpr std::int64_t kArithmeticPixels = std::int64_t(1) << 26;

// Of a picture with less rows or columns nothing is left out: it would not pay.
constexpr int kSmall = 64;

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
    source_.fill_input_buffer = [](j_decompress_ptr info) -> boolean {  // there is no more
      Decoder& decoder = of(reinterpret_cast<j_common_ptr>(info));
      decoder.truncated_ = true;
      std::longjmp(decoder.jump_, 1);
    };
    source_.skip_input_data = skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = [](j_decompress_ptr) {};
    info_.src = &source_;
    progress_.progress_monitor = [](j_common_ptr info) { of(info).check_scans(); };
    info_.progress = &progress_;
  }
  Decoder(const Decoder&) = delete;
  ~Decoder() { jpeg_destroy_decompress(&info_); }

  std::optional<JpegFrame> frame() {
    try {
      read_header();
    } catch (const UsageError&) {
      if (truncated_) return {};
      throw;
    }
    return JpegFrame{{int(info_.image_height), int(info_.image_width)}, info_.num_components};
  }

  Image decode(const JpegOptions& options) {
    start(options);
    Image image(int(info_.output_height), int(info_.output_width), 3);
    read(image);
    return image;
  }

  /// At least the box of a picture of this size.
  ImagePart decode_part(Size expected, const CropBox& box) {
    start({});
    const Size size{int(info_.output_height), int(info_.output_width)};
    if (size != expected) refuse(name_, "damaged JPEG (two sizes)", offset(), this->size());
    if (!can_leave_out(size, box)) {
      Image image(size, 3);
      read(image);
      return {std::move(image)};
    }
    const int left = choose_columns(box.left, box.size.width);
    const int top = skip_rows(box.top);
    Image image(box.top + box.size.height - top, int(info_.output_width), 3);
    read(image);
    return {std::move(image), top, left};
  }

 private:
  static Decoder& of(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }

  static void skip(j_decompress_ptr info, long count) {
    jpeg_source_mgr& source = *info->src;
    const std::size_t step = std::min(source.bytes_in_buffer, std::size_t(std::max(count, 0L)));
    source.next_input_byte += step;
    source.bytes_in_buffer -= step;
  }

  std::int64_t arithmetic_room() const {
    return std::max(kArithmeticPixels, std::int64_t(size()) * kArithmeticPixelsPerByte);
  }

  // The size has been looked at before.
  int most_scans() const {
    if (!info_.arith_code) return kMaxScans;
    const std::int64_t pixels = std::int64_t(info_.image_width) * info_.image_height;
    return int(std::min<std::int64_t>(arithmetic_room() / pixels, kMaxScans));
  }

  void check_scans() {
    if (info_.input_scan_number <= most_scans()) return;
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
    if (truncated_) refuse(name_, "truncated: JPEG data end early", offset(), size());
    if (too_many_scans_) refuse(name_, "JPEG with more than " + scans_text(), offset(), size());
    char message[JMSG_LENGTH_MAX];
    errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), message);
    refuse(name_, "damaged JPEG (" + std::string(message) + ")", offset(), size());
  }

  std::string scans_text() const {
    const std::string scans = std::to_string(most_scans()) + " scans";
    if (most_scans() == kMaxScans) return scans;
    return scans + " of " + std::to_string(info_.image_width) + "x" + std::to_string(info_.image_height) +
           " pixels, arithmetic-coded,";
  }

  std::size_t size() const { return bytes_.size(); }
  std::size_t offset() const { return bytes_.size() - source_.bytes_in_buffer; }

  void choose_output() {
    // Huffman codes spend a bit on each block at least.
    const std::int64_t block_pixels = std::int64_t(info_.max_h_samp_factor) * info_.max_v_samp_factor * DCTSIZE2;
    const std::int64_t room = info_.arith_code ? arithmetic_room() : std::int64_t(size()) * 8 * block_pixels;
    check_size(name_, info_.image_width, info_.image_height, room);
    const int components = info_.num_components;
    if (components != 1 && components != 3 && components != 4) {
      throw UsageError("'" + name_ + "': JPEG with " + std::to_string(components) + " components, 1, 3 or 4 expected");
    }
    info_.out_color_space = components == 4 ? JCS_CMYK : JCS_RGB;
  }

  void read_header() {
    guarded([this] { jpeg_read_header(&info_, TRUE); });
  }

  // The file up to the first row.
  void start(const JpegOptions& options) {
    read_header();
    choose_output();
    info_.scale_num = 1;
    info_.scale_denom = unsigned(options.scale_denom);
    guarded([this] { jpeg_start_decompress(&info_); });
  }

  // The next rows, as many as the image has, and the end of the file.
  void read(Image& image) {
    first_row_ = int(info_.output_scanline);
    if (info_.out_color_space == JCS_CMYK) {
      read_cmyk(image);
    } else {
      guarded([&] { read_rows(image); });
    }
    if (info_.output_scanline == info_.output_height) {
      guarded([this] { jpeg_finish_decompress(&info_); });
    } else if (!has_end_mark()) {
      truncated_ = true;
      damaged();
    }
  }

  void read_rows(Image& image) {
    const JDIMENSION end = info_.output_scanline + JDIMENSION(image.height());
    while (info_.output_scanline < end) {
      JSAMPROW row = image.row(int(info_.output_scanline) - first_row_);
      jpeg_read_scanlines(&info_, &row, 1);
    }
  }

  void read_cmyk(Image& image) {
    Image row(1, image.width(), 4);
    JSAMPROW cmyk = row.row(0);
    while (info_.output_scanline < info_.output_height) {
      std::uint8_t* rgb = image.row(int(info_.output_scanline));
      guarded([&] { jpeg_read_scanlines(&info_, &cmyk, 1); });
      for (int x = 0; x < image.width(); ++x) to_rgb(cmyk + 4 * x, rgb + 3 * x);
    }
  }

  // Not in a progressive file: there all is decoded before the first row, and smoothing may look at neighbours.
  bool can_leave_out(Size size, const CropBox& box) {
    const bool much = 4 * std::int64_t(box.size.height) * box.size.width < 3 * std::int64_t(size.height) * size.width ||
                      4 * (box.top + box.size.height) < 3 * size.height;
    return much && size.height >= kSmall && size.width >= kSmall && info_.out_color_space == JCS_RGB &&
           !jpeg_has_multiple_scans(&info_);
  }

  // Smooth chroma looks at neighbours, which are missing at the edges of what is decoded: so a block more at
  // each side. Returns the first column that rows have from now on.
  int choose_columns(int left, int width) {
    const int block = info_.max_h_samp_factor * DCTSIZE;
    JDIMENSION first = JDIMENSION(std::max(left - block, 0));
    JDIMENSION count = std::min(JDIMENSION(left + width + block), info_.output_width) - first;
    guarded([&] { jpeg_crop_scanline(&info_, &first, &count); });
    return int(first);
  }

  // A row of blocks more as well. Returns the next row.
  int skip_rows(int top) {
    const int block = info_.max_v_samp_factor * DCTSIZE;
    const int first = std::max(top / block - 1, 0) * block;
    if (first > 0) guarded([&] { jpeg_skip_scanlines(&info_, JDIMENSION(first)); });
    return first;
  }

  // Decoding the rest would find it; compressed data never contain it.
  bool has_end_mark() {
    if (info_.unread_marker == JPEG_EOI || jpeg_input_complete(&info_)) return true;
    constexpr std::array<std::uint8_t, 2> kEnd = {0xff, JPEG_EOI};
    const std::span<const std::uint8_t> rest = bytes_.subspan(offset());
    return std::search(rest.begin(), rest.end(), kEnd.begin(), kEnd.end()) != rest.end();
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
  bool truncated_ = false;
  int first_row_ = 0;  // of the image that is read
};

}  // namespace

void check_scale(const JpegOptions& options) {
  const int scale = options.scale_denom;
  if (scale == 1 || scale == 2 || scale == 4 || scale == 8) return;
  throw UsageError("JPEG: scale_denom " + std::to_string(scale) + ", 1, 2, 4 or 8 expected");
}

std::optional<JpegFrame> jpeg_frame(std::span<const std::uint8_t> bytes, const std::string& name) {
  return Decoder(bytes, name).frame();
}

Image decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& name, const JpegOptions& options) {
  check_scale(options);
  return Decoder(bytes, name).decode(options);
}

EncodedJpeg::EncodedJpeg(std::vector<std::uint8_t> bytes, std::string name, Size size, const JpegOptions& options)
    : bytes_(std::move(bytes)), name_(std::move(name)), size_(size), options_(options) {
  check_scale(options);
  const auto scaled = [&](int length) { return (length + options.scale_denom - 1) / options.scale_denom; };
  size_ = {scaled(size.height), scaled(size.width)};
}

ImagePart EncodedJpeg::part(const CropBox& box) const {
  const DecodeTime counted;
  if (options_.scale_denom > 1) return {decode_jpeg(bytes_, name_, options_)};
  return Decoder(bytes_, name_).decode_part(size_, box);
}

}  // namespace lockstep::data
