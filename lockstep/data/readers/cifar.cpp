#include "lockstep/data/readers/cifar.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/readers/byte_source.h"
#include "lockstep/data/readers/paths.h"

namespace lockstep::data {
namespace {

constexpr int kSide = 32;
constexpr std::size_t kPlane = kSide * kSide;
constexpr std::size_t kMostRecords = 50'000;  // of a file: what CIFAR-100's train.bin has
constexpr std::size_t kMostNameBytes = 1 << 20;

// What a record begins with.
struct RecordHead {
  std::size_t bytes;     // labels before the pixels
  std::size_t label_at;  // the one that is wanted
};

std::string folder_of(const std::string& path, const std::string& inner, const std::string& file) {
  namespace fs = std::filesystem;
  for (const fs::path& place : {fs::path(path), fs::path(path) / inner}) {
    if (is_there(place / file)) return place.string();
  }
  throw UsageError("no CIFAR file '" + file + "' in '" + path + "' or '" + (fs::path(path) / inner).string() + "'");
}

void append_records(const std::string& path, const RecordHead& head, MemoryPictures::Content& content) {
  const std::size_t record = head.bytes + 3 * kPlane;
  const std::vector<std::uint8_t> bytes = read_bytes(path, kMostRecords * record);
  if (bytes.empty() || bytes.size() % record != 0) {
    throw UsageError("'" + path + "': " + std::to_string(bytes.size()) + " bytes, records of " +
                     std::to_string(record) + " expected: truncated, or not the binary version");
  }
  content.pixels.reserve(content.pixels.size() + bytes.size() / record * 3 * kPlane);
  for (std::size_t at = 0; at < bytes.size(); at += record) {
    const std::uint8_t label = bytes[at + head.label_at];
    if (label >= content.classes.size()) {
      throw UsageError("'" + path + "': label " + std::to_string(label) + " at offset " +
                       std::to_string(at + head.label_at) + ", 0 ... " + std::to_string(content.classes.size() - 1) +
                       " expected");
    }
    content.labels.push_back(label);
    const std::uint8_t* planes = bytes.data() + at + head.bytes;
    for (std::size_t i = 0; i < kPlane; ++i) {
      for (std::size_t c = 0; c < 3; ++c) content.pixels.push_back(planes[c * kPlane + i]);
    }
  }
}

std::vector<std::string> read_names(const std::string& path, std::size_t count) {
  const std::vector<std::uint8_t> bytes = read_bytes(path, kMostNameBytes);
  std::istringstream text(std::string(bytes.begin(), bytes.end()));
  std::vector<std::string> names;
  for (std::string line; std::getline(text, line);) {
    if (!line.empty()) names.push_back(line);
  }
  if (names.size() != count) {
    throw UsageError("'" + path + "': " + std::to_string(names.size()) + " names, " + std::to_string(count) +
                     " expected");
  }
  return names;
}

MemoryPictures read_cifar10(const std::vector<std::string>& files) {
  MemoryPictures::Content content{
      .size = {kSide, kSide},
      .classes = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}};
  for (const std::string& file : files) append_records(file, {1, 0}, content);
  return MemoryPictures(std::move(content));
}

}  // namespace

MemoryPictures load_cifar10(const std::string& path, Split split) {
  std::vector<std::string> files = {"test_batch.bin"};
  if (split == Split::train) {
    files.clear();
    for (int i = 1; i <= 5; ++i) files.push_back("data_batch_" + std::to_string(i) + ".bin");
  }
  const std::string folder = folder_of(path, "cifar-10-batches-bin", files[0]);
  for (std::string& file : files) file = folder + "/" + file;
  return read_cifar10(files);
}

MemoryPictures load_cifar10_file(const std::string& file) { return read_cifar10({file}); }

MemoryPictures load_cifar100(const std::string& path, Split split, CifarLabels labels) {
  const bool fine = labels == CifarLabels::fine;
  const std::string file = split == Split::train ? "train.bin" : "test.bin";
  const std::string folder = folder_of(path, "cifar-100-binary", file);
  MemoryPictures::Content content{.size = {kSide, kSide}};
  content.classes = read_names(folder + (fine ? "/fine_label_names.txt" : "/coarse_label_names.txt"), fine ? 100 : 20);
  append_records(folder + "/" + file, {2, fine ? 1u : 0u}, content);
  return MemoryPictures(std::move(content));
}

}  // namespace lockstep::data
