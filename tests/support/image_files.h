#pragma once

// Image files for tests, written by the libraries' encoders or byte by byte.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/data/image.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::testing {

using Bytes = std::vector<std::uint8_t>;

/// Reproducible smooth colours with some texture.
data::Image picture(int height, int width, int channels = 3);

struct JpegOptions {
  int quality = 90;
  bool progressive = false;
  bool arithmetic = false;  ///< coded; else Huffman's
  bool subsampled = true;
  int across = 2;  ///< pixels of a colour sample, if subsampled
  int down = 2;
  bool cmyk = false;  ///< the picture has 4 channels, stored as they are
  int restart_rows = 0;
};
Bytes jpeg_file(const data::Image& image, const JpegOptions& options = {});

/// `file` with what libjpeg passes over: bytes between its segments, a first segment that says it is shorter. With
/// names.
std::map<std::string, Bytes> untidy_jpegs(const Bytes& file);

/// One chunk with its length and checksum.
Bytes png_chunk(const std::string& type, const Bytes& data);

struct PngHeader {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint8_t depth = 8;
  std::uint8_t color = 2;  ///< 0 grey, 2 RGB, 3 palette, 4 grey + alpha, 6 RGBA
};
/// A PNG of these unfiltered rows; `before` stands between header and data (palette, transparency).
Bytes png_file(const PngHeader& header, const std::vector<Bytes>& rows, const Bytes& before = {});

/// RGB, filtered and, if asked for, interlaced by libpng.
Bytes png_file(const data::Image& image, bool interlaced);

/// Writes a folder per class with `per_class` pictures 0.jpg, 1.jpg …, all different, into `folder`/`name`.
struct PictureFolder {
  std::vector<std::string> classes = {"ant", "bee"};
  int per_class = 20;
  data::Size size = {12, 12};
};
void write_pictures(const ScratchFolder& folder, const std::string& name, const PictureFolder& content = {});

}  // namespace lockstep::testing
