#include "lockstep/data/readers/annotated_pictures.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/readers/csv.h"
#include "lockstep/data/readers/image_folder.h"
#include "lockstep/data/readers/picture_files.h"

namespace lockstep::data {
namespace {

// Label and path of each line.
struct Annotations {
  std::vector<std::string> labels;
  std::vector<std::string> paths;
  std::vector<std::uint64_t> lines;
};

void check_annotation(const CsvRecords& records, const std::vector<std::string_view>& fields) {
  if (fields.size() < 2) records.fail("a path and a label expected, there is only '" + shown(fields[0]) + "'");
  if (!has_picture_ending(std::string(fields[0])))
    records.fail("'" + shown(fields[0]) + "' does not end in .jpg, .jpeg or .png");
  if (fields[1].empty()) records.fail("no label behind '" + shown(fields[0]) + "'");
}

Annotations read_annotations(const std::string& file) {
  const std::unique_ptr<ByteSource> source = open_bytes(file);
  CsvRecords records(*source, ',');
  Annotations all;
  for (bool first = true; records.next(); first = false) {
    const std::vector<std::string_view>& fields = records.fields();
    if (first && !has_picture_ending(std::string(fields[0]))) continue;
    check_annotation(records, fields);
    all.paths.emplace_back(fields[0]);
    all.labels.emplace_back(fields[1]);
    all.lines.push_back(records.place().line);
  }
  if (all.paths.empty()) throw UsageError("'" + file + "': no picture is listed");
  return all;
}

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::vector<std::string> classes_of(std::vector<std::string> labels) {
  std::ranges::sort(labels);
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  if (std::ranges::all_of(labels, [](const std::string& label) { return whole_number(label).has_value(); }))
    std::ranges::stable_sort(labels, {}, [](const std::string& label) { return *whole_number(label); });
  return labels;
}

}  // namespace

AnnotatedPictures::AnnotatedPictures(const std::string& file, std::vector<std::string> classes)
    : folder_(std::filesystem::path(file).parent_path().string()), classes_(std::move(classes)) {
  Annotations all = read_annotations(file);
  if (classes_.empty()) classes_ = classes_of(all.labels);
  check_class_names(classes_, "'" + file + "'");
  std::map<std::string, std::int64_t> label_of;
  for (std::size_t label = 0; label < classes_.size(); ++label) label_of[classes_[label]] = std::int64_t(label);
  fingerprint_ = {.samples = std::int64_t(all.paths.size()), .classes = hash_of(classes_)};
  for (std::size_t i = 0; i < all.paths.size(); ++i) {
    const auto found = label_of.find(all.labels[i]);
    if (found == label_of.end())
      throw UsageError(file + ":" + std::to_string(all.lines[i]) + ": label '" + shown(all.labels[i]) +
                       "' is none of the classes: " + base::join(classes_));
    fingerprint_.entries = hash_on(hash_on(fingerprint_.entries, found->second), all.paths[i]);
    entries_.push_back({std::move(all.paths[i]), found->second});
  }
}

std::string AnnotatedPictures::file_of(std::int64_t index) const {
  return (std::filesystem::path(folder_) / entries_.at(std::size_t(index)).path).string();
}

Sample AnnotatedPictures::get(std::int64_t index) const {
  check_index(index, size());
  return {read_picture(file_of(index)), entries_[std::size_t(index)].label};
}

}  // namespace lockstep::data
