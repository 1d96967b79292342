#include <filesystem>

#include "lockstep/base/text.h"
#include "lockstep/data/inspect/kinds.h"
#include "lockstep/data/readers/cifar.h"
#include "lockstep/data/readers/load_set.h"
#include "lockstep/data/sets/paths.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

// `path` or its folder `inner`: the first that has one of the files; "" when none has.
fs::path place_of(const std::string& path, const std::string& inner, const Names& names) {
  for (const fs::path& place : {fs::path(path), fs::path(path) / inner}) {
    for (const std::string& name : names) {
      if (is_there(place / name)) return place;
    }
  }
  return {};
}

std::uint64_t bytes_of(const fs::path& folder, const Names& names) {
  std::uint64_t sum = 0;
  for (const std::string& name : names) {
    std::error_code error;
    const auto bytes = fs::file_size(folder / name, error);
    if (!error) sum += bytes;
  }
  return sum;
}

void name_empty_classes(const fs::path& place, const SetPart& part, std::vector<Fault>& faults) {
  Names empty;
  for (const ClassCount& each : part.classes) {
    if (each.pictures == 0) empty.push_back(each.name);
  }
  if (empty.empty()) return;
  const std::string words = empty.size() > 1 ? "empty classes in " : "empty class in ";
  faults.push_back({place.string(), words + part.name + ": " + base::join(empty)});
}

// Adds what load() gives to the part, or what it throws to the faults.
template <class Load>
void add_loaded(const std::string& path, SetPart& part, std::vector<Fault>& faults, Load load) {
  try {
    add_pictures(load(), part);
  } catch (const std::exception& error) {
    faults.push_back(fault_from(error, path));
  }
}

// CIFAR-10 file by file: a damaged one does not hide the others.
void add_files(const KnownSet& set, const fs::path& place, Split split, Report& report) {
  SetPart& part = report.parts.back();
  if (set.files != SetFiles::cifar10) {
    add_loaded(report.path, part, report.faults, [&] { return load_set(set, report.path, split); });
    return;
  }
  for (const std::string& name : file_names(set.files, split)) {
    const std::string file = (place / name).string();
    add_loaded(file, part, report.faults, [&] { return load_cifar10_file(file); });
  }
}

}  // namespace

void add_pictures(const MemoryPictures& set, SetPart& part) {
  const MemoryPictures::Content& content = set.content();
  if (part.classes.empty()) {
    for (const std::string& name : set.classes()) part.classes.push_back({name, 0});
  }
  for (const std::int64_t label : content.labels) ++part.classes[std::size_t(label)].pictures;
  part.pictures += set.size();
  part.sizes[content.size] += set.size();
  part.kinds[content.channels == 1 ? "grey" : "RGB"] += set.size();
}

std::optional<Report> inspect_known_set(const KnownSet& set, const std::string& path) {
  if (set.found.empty()) return std::nullopt;
  fs::path place = place_of(path, set.folder, file_names(set.files, Split::train));
  if (place.empty()) place = place_of(path, set.folder, file_names(set.files, Split::test));
  if (place.empty()) return std::nullopt;
  Report report{.path = path, .kind = set.found};
  for (const Split split : {Split::train, Split::test}) {
    report.parts.push_back(
        {.name = split == Split::train ? "train" : "test", .bytes = bytes_of(place, file_names(set.files, split))});
    add_files(set, place, split, report);
    name_empty_classes(place, report.parts.back(), report.faults);
  }
  return report;
}

}  // namespace lockstep::data
