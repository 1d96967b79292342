#include "tests/support/image_files.h"

#include <jpeglib.h>  // needs FILE and size_t before it
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace lockstep::testing {
namespace {

void put_word(Bytes& bytes, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(std::uint8_t(value >> shift));
}

void append(Bytes& bytes, const Bytes& more) { bytes.insert(bytes.end(), more.begin(), more.end()); }

}  // namespace

data::Image picture(int height, int width, int channels) {
  data::Image image(height, width, channels);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const int smooth = (3 + c) * x + (5 - c) * y;
        image.row(y)[x * channels + c] = std::uint8_t(((smooth >> 8 & 1) ? ~smooth : smooth) ^ ((x * y * 7) & 15));
      }
    }
  }
  return image;
}

Bytes jpeg_file(const data::Image& image, const JpegOptions& options) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = JDIMENSION(image.width());
  info.image_height = JDIMENSION(image.height());
  info.input_components = image.channels();
  info.in_color_space = options.cmyk ? JCS_CMYK : image.channels() == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, options.quality, TRUE);
  if (image.channels() == 3) {
    info.comp_info[0].h_samp_factor = options.subsampled ? options.across : 1;
    info.comp_info[0].v_samp_factor = options.subsampled ? options.down : 1;
  }
  if (options.progressive) jpeg_simple_progression(&info);
  info.arith_code = options.arithmetic ? TRUE : FALSE;
  info.restart_in_rows = options.restart_rows;
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(image.row(int(info.next_scanline)));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  Bytes bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

std::map<std::string, Bytes> untidy_jpegs(const Bytes& file) {
  constexpr std::uint8_t kTables = 0xdb, kFrame = 0xc0;
  const auto with = [&](std::uint8_t before, const Bytes& junk) {
    const Bytes marker = {0xff, before};
    const auto place = std::search(file.begin(), file.end(), marker.begin(), marker.end()) - file.begin();
    Bytes untidy = file;
    untidy.insert(untidy.begin() + place, junk.begin(), junk.end());
    return untidy;
  };
  Bytes short_segment = file;
  short_segment[5] = 2;
  return {{"zeros", with(kTables, {0, 0, 0})},
          {"text", with(kFrame, {'h', 'e', 'l', 'l', 'o'})},
          {"stuffing", with(kTables, {0xff, 0})},
          {"fill", with(kTables, {0xff, 0xff, 0xff})},
          {"short segment", short_segment}};
}

Bytes png_chunk(const std::string& type, const Bytes& data) {
  Bytes bytes;
  put_word(bytes, std::uint32_t(data.size()));
  Bytes body(type.begin(), type.end());
  append(body, data);
  append(bytes, body);
  put_word(bytes, std::uint32_t(crc32(0, body.data(), uInt(body.size()))));
  return bytes;
}

Bytes png_file(const PngHeader& header, const std::vector<Bytes>& rows, const Bytes& before) {
  Bytes size;
  put_word(size, header.width);
  put_word(size, header.height);
  append(size, {header.depth, header.color, 0, 0, 0});
  Bytes raw;
  for (const Bytes& row : rows) {
    raw.push_back(0);
    append(raw, row);
  }
  uLongf packed_size = compressBound(uLong(raw.size()));
  Bytes packed(packed_size);
  compress(packed.data(), &packed_size, raw.data(), uLong(raw.size()));
  packed.resize(packed_size);
  Bytes file = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  append(file, png_chunk("IHDR", size));
  append(file, before);
  append(file, png_chunk("IDAT", packed));
  append(file, png_chunk("IEND", {}));
  return file;
}

Bytes png_file(const data::Image& image, bool interlaced) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  Bytes file;
  const auto write = [](png_structp p, png_bytep data, std::size_t count) {
    append(*static_cast<Bytes*>(png_get_io_ptr(p)), Bytes(data, data + count));
  };
  png_set_write_fn(png, &file, write, nullptr);
  png_set_IHDR(png, info, png_uint_32(image.width()), png_uint_32(image.height()), 8, PNG_COLOR_TYPE_RGB,
               interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_bytep> rows;
  for (int y = 0; y < image.height(); ++y) rows.push_back(const_cast<png_bytep>(image.row(y)));
  png_set_rows(png, info, rows.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return file;
}

void write_pictures(const ScratchFolder& folder, const std::string& name, const PictureFolder& content) {
  int number = 0;
  for (const std::string& label : content.classes)
    for (int i = 0; i < content.per_class; ++i) {
      data::Image image = picture(content.size.height, content.size.width);
      std::fill_n(image.row(0), std::min<std::size_t>(image.bytes(), 48), std::uint8_t(5 * ++number));
      const Bytes file = jpeg_file(image);
      folder.write(name + "/" + label + "/" + std::to_string(i) + ".jpg", {file.begin(), file.end()});
    }
}

}  // namespace lockstep::testing
