#include "lockstep/data/readers/idx.h"

#include <ATen/ops/empty.h>

#include <array>
#include <filesystem>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/readers/byte_source.h"

namespace lockstep::data {
namespace {

constexpr std::uint32_t kUnsignedBytes = 0x00000800;

// Reads big-endian words and the pixels, keeping count of the offset.
class IdxReader {
 public:
  explicit IdxReader(const std::string& path) : source_(open_bytes(path)) {}

  std::uint32_t word() {
    std::array<unsigned char, 4> bytes{};
    read(bytes.data(), bytes.size());
    return std::uint32_t(bytes[0]) << 24 | std::uint32_t(bytes[1]) << 16 | std::uint32_t(bytes[2]) << 8 | bytes[3];
  }

  void read(void* out, std::size_t bytes) {
    const std::size_t got = source_->read(out, bytes);
    if (got < bytes) {
      fail("truncated at offset " + std::to_string(offset_ + got) + ", " + std::to_string(offset_ + bytes) +
           " bytes expected");
    }
    offset_ += bytes;
  }

  void expect_room(std::uint64_t bytes) const {
    if (bytes > source_->limit() - offset_) {
      fail("truncated: the sizes before offset " + std::to_string(offset_) + " promise " + std::to_string(bytes) +
           " bytes, which the file cannot hold");
    }
  }

  void expect_end() {
    char extra = 0;
    if (source_->read(&extra, 1) != 0) fail("trailing bytes at offset " + std::to_string(offset_));
  }

  [[noreturn]] void fail(const std::string& what) const { throw UsageError("'" + source_->path() + "': " + what); }

 private:
  std::unique_ptr<ByteSource> source_;
  std::uint64_t offset_ = 0;
};

std::string hex(std::uint32_t word) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) text += digits[word >> shift & 15];
  return text;
}

std::string find_file(const std::string& folder, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / "MNIST" / "raw"}) {
    for (const char* ending : {"", ".gz"}) {
      const fs::path file = place / (name + ending);
      if (fs::exists(file, ignored)) return file.string();
    }
  }
  throw UsageError("no MNIST file '" + name + "' or '" + name + ".gz' in '" + folder + "' or '" +
                   (fs::path(folder) / "MNIST" / "raw").string() + "'");
}

void check_labels(const at::Tensor& labels, int classes, const std::string& path) {
  const std::uint8_t* label = labels.const_data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < labels.size(0); ++i) {
    if (label[i] < classes) continue;
    throw UsageError("'" + path + "': label " + std::to_string(label[i]) + " of sample " + std::to_string(i) +
                     " at offset " + std::to_string(8 + i) + ", 0 ... " + std::to_string(classes - 1) + " expected");
  }
}

}  // namespace

at::Tensor read_idx(const std::string& path, int dimensions) {
  IdxReader reader(path);
  const std::uint32_t expected = kUnsignedBytes | std::uint32_t(dimensions);
  const std::uint32_t magic = reader.word();
  if (magic != expected) reader.fail("magic number " + hex(magic) + " at offset 0, " + hex(expected) + " expected");
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 1;
  for (int i = 0; i < dimensions; ++i) {
    shape.push_back(reader.word());
    if (__builtin_mul_overflow(bytes, std::uint64_t(shape.back()), &bytes)) {
      reader.fail("impossible sizes at offset 4");
    }
  }
  reader.expect_room(bytes);
  at::Tensor tensor = at::empty(shape, at::kByte);
  reader.read(tensor.mutable_data_ptr(), bytes);
  reader.expect_end();
  return tensor;
}

ImageSet load_mnist(const std::string& path, bool train) {
  constexpr int kClasses = 10;
  const std::string part = train ? "train" : "t10k";
  const std::string image_file = find_file(path, part + "-images-idx3-ubyte");
  const std::string label_file = find_file(path, part + "-labels-idx1-ubyte");
  const at::Tensor images = read_idx(image_file, 3);
  const at::Tensor labels = read_idx(label_file, 1);
  const std::int64_t count = images.size(0);
  if (images.size(1) != 28 || images.size(2) != 28) {
    throw UsageError("'" + image_file + "': images of " + std::to_string(images.size(1)) + "x" +
                     std::to_string(images.size(2)) + " at offset 8, 28x28 expected");
  }
  if (count == 0) throw UsageError("'" + image_file + "': no images (count 0 at offset 4)");
  if (labels.size(0) != count) {
    throw UsageError("'" + label_file + "': " + std::to_string(labels.size(0)) + " labels at offset 4, but '" +
                     image_file + "' has " + std::to_string(count) + " images");
  }
  check_labels(labels, kClasses, label_file);
  return {images.view({count, 1, 28, 28}), labels.to(at::kLong), kClasses};
}

}  // namespace lockstep::data
