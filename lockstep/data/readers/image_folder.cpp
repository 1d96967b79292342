#include "lockstep/data/readers/image_folder.h"

#include <chrono>
#include <filesystem>

#include "lockstep/data/codecs/decode.h"
#include "lockstep/data/readers/folder_index.h"

namespace lockstep::data {
namespace {

std::int64_t now_ns() { return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

ImageFolder::ImageFolder(const std::string& path, const ImageFolderOptions& options) {
  FolderIndex index =
      options.index_cache.empty() ? walk_folders(path) : cached_index(path, options.index_cache, now_ns());
  classes_ = std::move(index.classes);
  for (const IndexedFolder& folder : index.folders) {
    const std::string start = (std::filesystem::path(path) / folder.path).string() + "/";
    for (const std::string& picture : folder.pictures) entries_.push_back({start + picture, folder.label});
  }
}

Sample ImageFolder::get(std::int64_t index) const {
  check_index(index, size());
  const Entry& entry = entries_[std::size_t(index)];
  return {Picture(read_image(entry.path)), entry.label};
}

}  // namespace lockstep::data
