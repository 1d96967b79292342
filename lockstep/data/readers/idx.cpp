#include "lockstep/data/readers/idx.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/sets/paths.h"

namespace lockstep::data {
namespace {

constexpr std::uint32_t kUnsignedBytes = 0x00000800;

// Reads big-endian words and the pixels, keeping count of the offset.
class IdxReader {
 public:
  explicit IdxReader(ByteSource& source) : source_(source) {}

  std::uint32_t word() {
    std::array<unsigned char, 4> bytes{};
    read(bytes.data(), bytes.size());
    return std::uint32_t(bytes[0]) << 24 | std::uint32_t(bytes[1]) << 16 | std::uint32_t(bytes[2]) << 8 | bytes[3];
  }

  void read(void* out, std::size_t bytes) {
    const std::size_t got = source_.read(out, bytes);
    if (got < bytes) {
      fail("truncated at offset " + std::to_string(offset_ + got) + ", " + std::to_string(offset_ + bytes) +
           " bytes expected");
    }
    offset_ += bytes;
  }

  // Takes memory as the bytes come: a packed file may promise a thousand times what it holds.
  std::vector<std::uint8_t> read_all(std::uint64_t bytes) {
    constexpr std::uint64_t kPiece = 64 << 20;
    std::vector<std::uint8_t> all;
    while (all.size() < bytes) {
      const std::size_t before = all.size(), piece = std::min(kPiece, bytes - before);
      all.resize(before + piece);
      const std::size_t got = source_.read(all.data() + before, piece);
      if (got < piece)
        fail("truncated at offset " + std::to_string(offset_ + before + got) + ", " + std::to_string(offset_ + bytes) +
             " bytes expected");
    }
    offset_ += bytes;
    return all;
  }

  void expect_room(std::uint64_t bytes) const {
    if (bytes > source_.limit() - offset_) {
      fail("truncated: the sizes before offset " + std::to_string(offset_) + " promise " + std::to_string(bytes) +
           " bytes, which the file cannot hold");
    }
  }

  void expect_end() {
    char extra = 0;
    if (source_.read(&extra, 1) != 0) fail("trailing bytes at offset " + std::to_string(offset_));
  }

  [[noreturn]] void fail(const std::string& what) const { throw UsageError("'" + source_.path() + "': " + what); }

 private:
  ByteSource& source_;
  std::uint64_t offset_ = 0;
};

std::string hex(std::uint32_t word) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) text += digits[word >> shift & 15];
  return text;
}

// Plain or packed, in the folder or where torchvision puts the set: in SET/raw of it.
std::string find_file(const std::string& folder, const KnownSet& set, const std::string& name) {
  namespace fs = std::filesystem;
  const std::string& inner = set.folder;
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / inner}) {
    for (const char* ending : {"", ".gz"}) {
      const fs::path file = place / (name + ending);
      if (is_there(file)) return file.string();
    }
  }
  throw UsageError("no " + inner.substr(0, inner.find('/')) + " file '" + name + "' or '" + name + ".gz' in '" +
                   folder + "' or '" + (fs::path(folder) / inner).string() + "'" + how_to_download(set));
}

void check_labels(const std::vector<std::uint8_t>& labels, int classes, const std::string& path) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < classes) continue;
    throw UsageError("'" + path + "': label " + std::to_string(labels[i]) + " of sample " + std::to_string(i) +
                     " at offset " + std::to_string(8 + i) + ", 0 ... " + std::to_string(classes - 1) + " expected");
  }
}

}  // namespace

IdxBytes read_idx(const std::string& path, int dimensions) { return read_idx(*open_bytes(path), dimensions); }

IdxBytes read_idx(ByteSource& source, int dimensions) {
  IdxReader reader(source);
  const std::uint32_t expected = kUnsignedBytes | std::uint32_t(dimensions);
  const std::uint32_t magic = reader.word();
  if (magic != expected) reader.fail("magic number " + hex(magic) + " at offset 0, " + hex(expected) + " expected");
  IdxBytes result;
  std::uint64_t bytes = 1;
  for (int i = 0; i < dimensions; ++i) {
    result.shape.push_back(reader.word());
    if (__builtin_mul_overflow(bytes, std::uint64_t(result.shape.back()), &bytes)) {
      reader.fail("impossible sizes at offset 4");
    }
  }
  reader.expect_room(bytes);
  result.bytes = reader.read_all(bytes);
  reader.expect_end();
  return result;
}

MemoryPictures load_idx_set(const KnownSet& set, const std::string& path, Split split) {
  const std::vector<std::string> names = idx_file_names(split);
  const std::string image_file = find_file(path, set, names[0]);
  const std::string label_file = find_file(path, set, names[1]);
  IdxBytes images = read_idx(image_file, 3);
  const IdxBytes labels = read_idx(label_file, 1);
  const std::int64_t count = images.shape[0];
  const Size size{int(set.task.height), int(set.task.width)};
  if (images.shape[1] != size.height || images.shape[2] != size.width) {
    throw UsageError("'" + image_file + "': images of " + std::to_string(images.shape[1]) + "x" +
                     std::to_string(images.shape[2]) + " at offset 8, " + to_string(size) + " expected");
  }
  if (count == 0) throw UsageError("'" + image_file + "': no images (count 0 at offset 4)");
  if (labels.shape[0] != count) {
    throw UsageError("'" + label_file + "': " + std::to_string(labels.shape[0]) + " labels at offset 4, but '" +
                     image_file + "' has " + std::to_string(count) + " images");
  }
  check_labels(labels.bytes, int(set.class_names.size()), label_file);
  return MemoryPictures({.size = size,
                         .channels = 1,
                         .pixels = std::move(images.bytes),
                         .labels = {labels.bytes.begin(), labels.bytes.end()},
                         .classes = set.class_names});
}

std::vector<std::string> idx_file_names(Split split) {
  const std::string part = split == Split::train ? "train" : "t10k";
  const std::string images = part + "-images-idx3-ubyte", labels = part + "-labels-idx1-ubyte";
  return {images, labels, images + ".gz", labels + ".gz"};
}

MemoryPictures load_mnist(const std::string& path, Split split) { return load_idx_set(find_set("mnist"), path, split); }

MemoryPictures load_fashion_mnist(const std::string& path, Split split) {
  return load_idx_set(find_set("fashion-mnist"), path, split);
}

}  // namespace lockstep::data
