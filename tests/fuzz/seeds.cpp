// fuzz_seeds FOLDER: writes what the fuzzers begin with, a folder for each of them.

#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "tests/support/image_files.h"

namespace {

using namespace lockstep::testing;

class Seeds {
 public:
  explicit Seeds(const std::filesystem::path& folder) : folder_(folder) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  void add(const Bytes& bytes) {
    std::ofstream file(folder_ / std::to_string(count_++), std::ios::binary);
    file.exceptions(std::ios::badbit | std::ios::failbit);
    file.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

void add_jpegs(Seeds& seeds) {
  for (const bool progressive : {false, true}) {
    for (const int channels : {1, 3, 4}) {
      seeds.add(jpeg_file(picture(20, 17, channels), {.progressive = progressive, .cmyk = channels == 4}));
    }
    seeds.add(jpeg_file(picture(33, 9), {.quality = 30, .progressive = progressive, .subsampled = false}));
    seeds.add(jpeg_file(picture(24, 24), {.progressive = progressive, .restart_rows = 1}));
  }
}

void add_pngs(Seeds& seeds) {
  for (const bool interlaced : {false, true}) seeds.add(png_file(picture(20, 17), interlaced));
  const Bytes palette = png_chunk("PLTE", {9, 8, 7, 50, 60, 70});
  for (const std::uint8_t depth : {1, 2, 4, 8, 16}) {
    const Bytes row(16, 0x5a);
    const std::uint32_t width = 8;
    const auto cut = [&](int samples) { return Bytes(row.begin(), row.begin() + (width * samples * depth + 7) / 8); };
    seeds.add(png_file({width, 1, depth, 0}, {cut(1)}));
    if (depth <= 8) seeds.add(png_file({width, 1, depth, 3}, {cut(1)}, palette));
  }
  for (const std::uint8_t depth : {8, 16}) {
    for (const auto& [color, samples] : {std::pair(2, 3), std::pair(4, 2), std::pair(6, 4)}) {
      const Bytes row(std::size_t(2 * samples * depth / 8), 0x33);
      seeds.add(png_file({2, 2, depth, std::uint8_t(color)}, {row, row}));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_seeds FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  Seeds decode(folder / "decode"), cifar(folder / "cifar");
  add_jpegs(decode);
  add_pngs(decode);
  Bytes record(3073, 7);
  cifar.add(record);
  record.resize(2 * 3073, 11);
  cifar.add(record);
  return 0;
}
