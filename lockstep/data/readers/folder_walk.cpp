#include "lockstep/data/readers/folder_walk.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/readers/picture_files.h"
#include "lockstep/data/sets/paths.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, const std::error_code& error) {
  throw UsageError("cannot read the folder '" + path + "': " + error.message());
}

std::int64_t nanoseconds(const timespec& time) { return std::int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec; }

// False when there is no such folder.
bool stamp_of(const std::string& path, FolderStamp& stamp) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return false;
  stamp = {info.st_ino, nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)};
  return true;
}

std::vector<std::string> pictures_among(const std::vector<std::string>& files, const std::string& path) {
  std::vector<std::string> pictures;
  for (const std::string& name : files) {
    if (has_ending_of_other_kind(name)) {
      throw UsageError("'" + path + "/" + name + "': only JPEG and PNG pictures can be read");
    }
    if (has_picture_ending(name)) pictures.push_back(name);
  }
  return pictures;
}

// Walks one class.
class ClassWalk {
 public:
  ClassWalk(std::string root, std::int64_t label) : root_(std::move(root)), label_(label) {}

  // All folders from `path` on, sorted by their paths.
  std::vector<IndexedFolder> from(const std::string& path) {
    visit(path);
    std::ranges::sort(found_, {}, &IndexedFolder::path);
    return std::move(found_);
  }

 private:
  void visit(const std::string& path) {
    const std::string full = root_ + path;
    std::error_code error;
    const std::string real = fs::canonical(full, error).string();
    if (error) refuse(full, error);
    if (std::ranges::find(above_, real) != above_.end()) {
      throw UsageError("'" + full + "': a link back to '" + real + "', which contains it");
    }
    IndexedFolder folder{.path = path, .label = label_};
    if (!stamp_of(full, folder.stamp)) refuse(full, std::error_code(errno, std::generic_category()));
    Listing listing = list_folder(full);
    folder.pictures = pictures_among(listing.files, full);
    folder.links = std::move(listing.links);
    found_.push_back(std::move(folder));
    above_.push_back(real);
    for (const std::string& name : listing.folders) visit(path + "/" + name);
    above_.pop_back();
  }

  std::string root_;
  std::int64_t label_;
  std::vector<std::string> above_;  // the folders that lead to the one visited, by their real names
  std::vector<IndexedFolder> found_;
};

std::string with_slash(const std::string& root) { return (fs::path(root) / "").string(); }

}  // namespace

FolderIndex walk_folders(const std::string& root) {
  FolderIndex index{.classes = list_folder(root).folders};
  if (index.classes.empty()) throw UsageError("'" + root + "': no class folder in it");
  std::vector<std::string> empty;
  for (std::size_t label = 0; label < index.classes.size(); ++label) {
    std::vector<IndexedFolder> folders = ClassWalk(with_slash(root), std::int64_t(label)).from(index.classes[label]);
    if (std::ranges::all_of(folders, [](const IndexedFolder& folder) { return folder.pictures.empty(); })) {
      empty.push_back(index.classes[label]);
    }
    std::ranges::move(folders, std::back_inserter(index.folders));
  }
  if (empty.empty()) return index;
  throw UsageError("'" + root + "': no picture (.jpg, .jpeg, .png) for " + (empty.size() > 1 ? "classes " : "class ") +
                   base::join(empty));
}

bool is_current(const FolderIndex& index, const std::string& root) {
  // The root itself is listed: it holds folders only, and perhaps the cache, which changes its times.
  if (list_folder(root).folders != index.classes) return false;
  const std::string start = with_slash(root);
  return std::ranges::all_of(index.folders, [&](const IndexedFolder& folder) {
    FolderStamp stamp;
    if (!stamp_of(start + folder.path, stamp) || stamp != folder.stamp) return false;
    return std::ranges::none_of(folder.links,
                                [&](const std::string& name) { return is_folder(start + folder.path + "/" + name); });
  });
}

bool is_settled(const FolderIndex& index, std::int64_t now_ns) {
  constexpr std::int64_t kCoarsestTick = 2'000'000'000;
  return std::ranges::all_of(index.folders, [&](const IndexedFolder& folder) {
    return std::max(folder.stamp.modified_ns, folder.stamp.changed_ns) < now_ns - kCoarsestTick;
  });
}

}  // namespace lockstep::data
