#include "lockstep/data/readers/image_folder.h"

#include <chrono>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/data/codecs/decode.h"
#include "lockstep/data/codecs/header.h"
#include "lockstep/data/decode_time.h"
#include "lockstep/data/readers/folder_index.h"

namespace lockstep::data {
namespace {

std::int64_t now_ns() { return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(); }

SetFingerprint fingerprint_of(const FolderIndex& index) {
  SetFingerprint print{.classes = hash_of(index.classes)};
  for (const IndexedFolder& folder : index.folders) {
    print.samples += std::int64_t(folder.pictures.size());
    print.entries = hash_on(hash_on(hash_on(print.entries, folder.path), folder.label), std::int64_t(print.samples));
    for (const std::string& picture : folder.pictures) print.entries = hash_on(print.entries, picture);
  }
  return print;
}

}  // namespace

Picture read_picture(const std::string& path, const JpegOptions& options) {
  const DecodeTime counted;
  std::vector<std::uint8_t> bytes = read_image_file(path);
  if (image_format(bytes, path) == ImageFormat::jpeg) {
    const Size size = image_header(bytes, path).size;
    return Picture(std::make_shared<EncodedJpeg>(std::move(bytes), path, size, options));
  }
  if (options.scale_denom != 1) {
    throw UsageError("'" + path + "': scale_denom " + std::to_string(options.scale_denom) +
                     ", which only JPEG pictures can be decoded with");
  }
  return Picture(decode(bytes, path));
}

ImageFolder::ImageFolder(const std::string& path, const ImageFolderOptions& options) : jpeg_(options.jpeg) {
  check_scale(jpeg_);
  FolderIndex index =
      options.index_cache.empty() ? walk_folders(path) : cached_index(path, options.index_cache, now_ns());
  fingerprint_ = fingerprint_of(index);
  classes_ = std::move(index.classes);
  for (const IndexedFolder& folder : index.folders) {
    const std::string start = (std::filesystem::path(path) / folder.path).string() + "/";
    for (const std::string& picture : folder.pictures) entries_.push_back({start + picture, folder.label});
  }
}

Sample ImageFolder::get(std::int64_t index) const {
  check_index(index, size());
  const Entry& entry = entries_[std::size_t(index)];
  return {read_picture(entry.path, jpeg_), entry.label};
}

}  // namespace lockstep::data
