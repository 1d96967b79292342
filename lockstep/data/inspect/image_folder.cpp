#include <algorithm>
#include <array>
#include <filesystem>

#include "lockstep/base/text.h"
#include "lockstep/data/inspect/kinds.h"
#include "lockstep/data/readers/picture_files.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

// Adds the files of a class to the part, and what is wrong with them to the faults.
void add_class(const std::string& path, const InspectOptions& options, SetPart& part, std::vector<Fault>& faults) {
  part.classes.push_back({fs::path(path).filename().string(), 0});
  PictureFiles files;
  try {
    files = pictures_below(path);
  } catch (const std::exception& error) {
    faults.push_back(fault_from(error, path));
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

SetPart look_at_part(const std::string& path, const std::string& name, const InspectOptions& options,
                     std::vector<Fault>& faults) {
  SetPart part{.name = name};
  const fs::path folder = fs::path(path) / name;
  const std::vector<std::string> classes = list_folder(folder).folders;
  for (const std::string& each : classes) add_class(folder / each, options, part, faults);
  if (classes.empty()) faults.push_back({folder.string(), "no class folder in it"});
  return part;
}

// The folders that --data-path takes apart, in the order of their use.
constexpr std::array<const char*, 3> kParts = {"train", "val", "test"};

bool is_part(const std::string& name) { return std::ranges::find(kParts, name) != kParts.end(); }

// Whether the folders are those that training reads: its pictures are in train, whatever lies beside it. A train
// without class folders is a class when other classes are its neighbours, and no val or test is.
bool are_parts(const std::string& path, const std::vector<std::string>& folders) {
  const auto below = [&](const std::string& name) { return list_folder(fs::path(path) / name); };
  const auto has_classes = [&](const std::string& name) { return !below(name).folders.empty(); };
  if (std::ranges::find(folders, "train") == folders.end()) {
    return std::ranges::all_of(folders, [&](const std::string& name) { return is_part(name) && has_classes(name); });
  }
  if (has_classes("train")) return true;
  return std::ranges::none_of(folders, [&](const std::string& name) {
    return !is_part(name) && std::ranges::any_of(below(name).files, has_picture_ending);
  });
}

// What stands in the way of training though nothing is damaged.
std::vector<std::string> notes_on(const std::vector<std::string>& folders) {
  const auto lacks = [&](const char* name) { return std::ranges::find(folders, name) == folders.end(); };
  std::vector<std::string> notes, others;
  std::ranges::remove_copy_if(folders, std::back_inserter(others), is_part);
  if (!others.empty()) notes.push_back("not looked at: " + base::join(others));
  if (lacks("train")) notes.emplace_back("no folder 'train': training needs one");
  if (lacks("val") && lacks("test")) notes.emplace_back("no folder 'val' or 'test': training needs --no-eval");
  return notes;
}

// A label is the place of the class's name: parts with other classes would have other labels.
void compare_classes(const std::string& path, const std::vector<SetPart>& parts, std::vector<Fault>& faults) {
  for (const SetPart& part : parts) {
    if (part.classes.empty() || parts[0].classes.empty()) continue;
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
  Report report{.path = path, .kind = "ImageFolder", .headers_only = options.quick};
  if (are_parts(path, folders)) {
    for (const char* name : kParts) {
      if (std::ranges::find(folders, name) == folders.end()) continue;
      report.parts.push_back(look_at_part(path, name, options, report.faults));
    }
    report.notes = notes_on(folders);
    compare_classes(path, report.parts, report.faults);
    return report;
  }
  report.parts.push_back(look_at_part(path, "", options, report.faults));
  return report.parts[0].pictures > 0 ? std::optional(std::move(report)) : std::nullopt;
}

}  // namespace lockstep::data
