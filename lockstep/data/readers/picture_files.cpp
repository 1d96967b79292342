#include "lockstep/data/readers/picture_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/data/sets/paths.h"

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

// All folders from `path` on. `above` are those that lead to it, by their real names.
void walk(const std::string& path, std::vector<std::string>& above, std::vector<std::string>& all) {
  std::error_code error;
  const std::string real = fs::canonical(path, error).string();
  if (error) throw UsageError("cannot read the folder '" + path + "': " + error.message());
  if (std::ranges::find(above, real) != above.end()) {
    throw UsageError("'" + path + "': a link back to '" + real + "', which contains it");
  }
  all.push_back(path);
  above.push_back(real);
  for (const std::string& name : list_folder(path).folders) walk(path + "/" + name, above, all);
  above.pop_back();
}

}  // namespace

bool has_picture_ending(const std::string& name) { return ends_in(name, kRead); }

bool has_ending_of_other_kind(const std::string& name) { return ends_in(name, kNotRead); }

Listing list_folder(const std::string& path) {
  Listing listing;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    std::string name = entry->path().filename().string();
    const bool folder = entry->is_directory(unknown);
    require_known(unknown, entry->path().string());
    if (folder) {
      listing.folders.push_back(std::move(name));
      continue;
    }
    if (entry->is_symlink(unknown)) listing.links.push_back(name);
    listing.files.push_back(std::move(name));
  }
  if (error) throw UsageError("cannot read the folder '" + path + "': " + error.message());
  std::ranges::sort(listing.folders);
  std::ranges::sort(listing.files);
  std::ranges::sort(listing.links);
  return listing;
}

PictureFiles pictures_below(const std::string& path) {
  std::vector<std::string> above, folders;
  walk(path, above, folders);
  std::ranges::sort(folders);
  PictureFiles found;
  for (const std::string& folder : folders) {
    for (const std::string& name : list_folder(folder).files) {
      if (has_picture_ending(name)) found.pictures.push_back(folder + "/" + name);
      if (has_ending_of_other_kind(name)) found.of_other_kinds.push_back(folder + "/" + name);
    }
  }
  return found;
}

}  // namespace lockstep::data
