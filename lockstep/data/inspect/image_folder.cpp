#include <algorithm>
#include <filesystem>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/data/inspect/kinds.h"
#include "lockstep/data/readers/picture_files.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

// Adds the files of a class to the part, and what is wrong with them to the faults.
void add_class(const std::string& path, const InspectOptions& options, Part& part, std::vector<Fault>& faults) {
  part.classes.push_back({fs::path(path).filename().string(), 0});
  PictureFiles files;
  try {
    files = pictures_below(path);
  } catch (const std::exception& error) {
    faults.push_back(fault_from(error.what(), path));
    return;
  }
  part.classes.back().pictures = std::int64_t(files.pictures.size());
  part.pictures += std::int64_t(files.pictures.size());
  if (files.pictures.empty()) faults.push_back({path, "empty class: no picture (.jpg, .jpeg, .png) in it"});
  for (const std::string& file : files.of_other_kinds) faults.push_back({file, "only JPEG and PNG can be read"});
  const std::vector<PictureFacts> facts = look_at_pictures(files.pictures, options);
  for (std::size_t i = 0; i < facts.size(); ++i) {
    part.bytes += facts[i].bytes;
    if (!facts[i].kind.empty()) ++part.sizes[facts[i].size];
    if (!facts[i].kind.empty()) ++part.kinds[facts[i].kind];
    if (!facts[i].damage.empty()) faults.push_back({files.pictures[i], facts[i].damage});
  }
}

Part look_at_part(const std::string& path, const std::string& name, const InspectOptions& options,
                  std::vector<Fault>& faults) {
  Part part{.name = name};
  const fs::path folder = fs::path(path) / name;
  for (const std::string& each : list_folder(folder).folders) add_class(folder / each, options, part, faults);
  return part;
}

// Names of folders that hold class folders and are no classes themselves, in the order of their use.
std::vector<std::string> part_names(const std::string& path, const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  for (const char* name : {"train", "val", "valid", "validation", "test"}) {
    const bool there = std::ranges::find(folders, name) != folders.end();
    if (there && !list_folder(fs::path(path) / name).folders.empty()) names.push_back(name);
  }
  return names.size() == folders.size() ? names : std::vector<std::string>{};
}

// A label is the place of the class's name: parts with other classes would have other labels.
void compare_classes(const std::string& path, const std::vector<Part>& parts, std::vector<Fault>& faults) {
  for (const Part& part : parts) {
    for (const ClassCount& each : parts[0].classes) {
      if (std::ranges::find(part.classes, each.name, &ClassCount::name) != part.classes.end()) continue;
      faults.push_back({path + "/" + part.name, "no class '" + each.name + "', which " + parts[0].name + " has"});
    }
    for (const ClassCount& each : part.classes) {
      if (std::ranges::find(parts[0].classes, each.name, &ClassCount::name) != parts[0].classes.end()) continue;
      faults.push_back({path + "/" + part.name, "class '" + each.name + "', which " + parts[0].name + " has not"});
    }
  }
}

}  // namespace

std::optional<Report> inspect_image_folder(const std::string& path, const InspectOptions& options) {
  const std::vector<std::string> folders = list_folder(path).folders;
  if (folders.empty()) return std::nullopt;
  const std::vector<std::string> names = part_names(path, folders);
  Report report{.path = path, .kind = "ImageFolder", .headers_only = options.quick};
  if (names.empty()) {
    report.parts.push_back(look_at_part(path, "", options, report.faults));
  } else {
    for (const std::string& name : names) report.parts.push_back(look_at_part(path, name, options, report.faults));
    compare_classes(path, report.parts, report.faults);
  }
  const bool any = std::ranges::any_of(report.parts, [](const Part& part) { return part.pictures > 0; });
  return any ? std::optional(std::move(report)) : std::nullopt;
}

}  // namespace lockstep::data
