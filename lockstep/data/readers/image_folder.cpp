#include "lockstep/data/readers/image_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/codecs/decode.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kRead = {".jpg", ".jpeg", ".png"};
constexpr std::array<std::string_view, 6> kNotRead = {".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp"};

template <std::size_t N>
bool ends_in(const std::string& name, const std::array<std::string_view, N>& endings) {
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return std::ranges::any_of(endings, [&](std::string_view ending) { return lower.ends_with(ending); });
}

struct Listing {
  std::vector<std::string> folders;  // names, sorted
  std::vector<std::string> files;
};

// A link that leads nowhere counts as a file, as in Python; reading it says what is wrong.
Listing list(const std::string& path) {
  Listing listing;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const std::string name = entry->path().filename().string();
    (entry->is_directory(ignored) ? listing.folders : listing.files).push_back(name);
  }
  if (error) throw UsageError("cannot read the folder '" + path + "': " + error.message());
  std::ranges::sort(listing.folders);
  std::ranges::sort(listing.files);
  return listing;
}

// All folders from `path` on. `above` are those that lead to it, by their real names.
void walk(const std::string& path, std::vector<std::string>& above, std::vector<std::string>& all) {
  const std::string real = fs::canonical(path).string();
  if (std::ranges::find(above, real) != above.end()) {
    throw UsageError("'" + path + "': a link back to '" + real + "', which contains it");
  }
  all.push_back(path);
  above.push_back(real);
  for (const std::string& name : list(path).folders) walk(path + "/" + name, above, all);
  above.pop_back();
}

// The pictures of one class: folders sorted by their paths, files by their names.
std::vector<std::string> pictures_below(const std::string& path) {
  std::vector<std::string> above, folders, pictures;
  walk(path, above, folders);
  std::ranges::sort(folders);
  for (const std::string& folder : folders) {
    for (const std::string& name : list(folder).files) {
      const std::string file = folder + "/" + name;
      if (ends_in(name, kNotRead)) throw UsageError("'" + file + "': only JPEG and PNG pictures can be read");
      if (ends_in(name, kRead)) pictures.push_back(file);
    }
  }
  return pictures;
}

}  // namespace

ImageFolder::ImageFolder(const std::string& path) : classes_(list(path).folders) {
  if (classes_.empty()) throw UsageError("'" + path + "': no class folder in it");
  std::vector<std::string> empty;
  for (std::size_t label = 0; label < classes_.size(); ++label) {
    std::vector<std::string> pictures = pictures_below((fs::path(path) / classes_[label]).string());
    if (pictures.empty()) empty.push_back(classes_[label]);
    for (std::string& picture : pictures) entries_.push_back({std::move(picture), std::int64_t(label)});
  }
  if (!empty.empty()) {
    throw UsageError("'" + path + "': no picture (.jpg, .jpeg, .png) for " +
                     (empty.size() > 1 ? "classes " : "class ") + base::join(empty));
  }
}

Sample ImageFolder::get(std::int64_t index) const {
  check_index(index, size());
  const Entry& entry = entries_[std::size_t(index)];
  return {Picture(read_image(entry.path)), entry.label};
}

}  // namespace lockstep::data
