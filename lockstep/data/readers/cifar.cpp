#include "lockstep/data/readers/cifar.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/readers/byte_source.h"
#include "lockstep/data/sets/known_sets.h"
#include "lockstep/data/sets/paths.h"

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

std::string folder_of(const std::string& path, const KnownSet& set, const std::string& file) {
  namespace fs = std::filesystem;
  for (const fs::path& place : {fs::path(path), fs::path(path) / set.folder}) {
    if (is_there(place / file)) return place.string();
  }
  throw UsageError("no CIFAR file '" + file + "' in '" + path + "' or '" + (fs::path(path) / set.folder).string() +
                   "'" + how_to_download(set));
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
  check_class_names(names, "'" + path + "'");
  return names;
}

MemoryPictures read_cifar10(const std::vector<std::string>& files) {
  MemoryPictures::Content content{.size = {kSide, kSide}, .classes = find_set("cifar10").class_names};
  for (const std::string& file : files) append_records(file, {1, 0}, content);
  return MemoryPictures(std::move(content));
}

}  // namespace

std::vector<std::string> cifar10_file_names(Split split) {
  if (split == Split::test) return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
}

MemoryPictures load_cifar10(const std::string& path, Split split) {
  std::vector<std::string> files = cifar10_file_names(split);
  const std::string folder = folder_of(path, find_set("cifar10"), files[0]);
  for (std::string& file : files) file = folder + "/" + file;
  return read_cifar10(files);
}

MemoryPictures load_cifar10_file(const std::string& file) { return read_cifar10({file}); }

MemoryPictures load_cifar100(const std::string& path, Split split, CifarLabels labels) {
  const bool fine = labels == CifarLabels::fine;
  const KnownSet& set = find_set(fine ? "cifar100" : "cifar100-coarse");
  const std::string file = split == Split::train ? "train.bin" : "test.bin";
  const std::string folder = folder_of(path, set, file);
  MemoryPictures::Content content{.size = {kSide, kSide}};
  content.classes =
      read_names(folder + (fine ? "/fine_label_names.txt" : "/coarse_label_names.txt"), std::size_t(set.task.classes));
  append_records(folder + "/" + file, {2, fine ? 1u : 0u}, content);
  return MemoryPictures(std::move(content));
}

}  // namespace lockstep::data
