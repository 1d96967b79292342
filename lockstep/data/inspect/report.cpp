#include "lockstep/data/inspect/report.h"

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>

#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

using Json = nlohmann::ordered_json;

std::string count_text(std::int64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

std::string sizes_text(const SizeCounts& sizes) {
  if (sizes.size() == 1) return "all " + to_string(sizes.begin()->first);
  return std::to_string(sizes.size()) + " distinct: smallest " + to_string(sizes.begin()->first) + ", median " +
         to_string(median(sizes)) + ", largest " + to_string(sizes.rbegin()->first);
}

std::string kinds_text(const SetPart& part) {
  std::vector<std::string> words;
  for (const auto& [kind, count] : part.kinds) words.push_back(std::to_string(count) + " " + kind);
  return base::join(words);
}

std::string part_text(const SetPart& part) {
  std::string text = part.name.empty() ? "" : base::shown(part.name) + ": ";
  text += count_text(part.pictures, "picture", "pictures") + ", ";
  if (!part.classes.empty()) text += count_text(std::int64_t(part.classes.size()), "class", "classes") + ", ";
  text += base::size_text(part.bytes) + "\n";
  std::vector<std::string> names;
  for (const ClassCount& each : part.classes) names.push_back(base::shown(each.name));
  std::size_t width = 0;
  for (const std::string& name : names) width = std::max(width, name.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += "  " + names[i] + std::string(width - names[i].size(), ' ') + "  " +
            std::to_string(part.classes[i].pictures) + "\n";
  }
  if (!part.sizes.empty()) text += "  sizes (height x width): " + sizes_text(part.sizes) + "\n";
  if (!part.kinds.empty()) text += "  kinds: " + kinds_text(part) + "\n";
  return text;
}

Json size_json(Size size) { return {{"height", size.height}, {"width", size.width}}; }

Json part_json(const SetPart& part) {
  Json classes = Json::array(), kinds = Json::object();
  for (const ClassCount& each : part.classes) classes.push_back({{"name", each.name}, {"pictures", each.pictures}});
  for (const auto& [kind, count] : part.kinds) kinds[kind] = count;
  Json json = {{"name", part.name}, {"pictures", part.pictures}, {"bytes", part.bytes}, {"classes", classes}};
  json["kinds"] = kinds;
  json["sizes"] = {{"distinct", part.sizes.size()}};
  if (!part.sizes.empty()) {
    json["sizes"]["smallest"] = size_json(part.sizes.begin()->first);
    json["sizes"]["median"] = size_json(median(part.sizes));
    json["sizes"]["largest"] = size_json(part.sizes.rbegin()->first);
  }
  return json;
}

// "'path': reason"; the path is empty when the message is none of these.
Fault quoted_fault(const std::string& message, const std::string& path) {
  for (const std::string& name : {path, base::shown(path)}) {
    const std::string front = "'" + name + "': ";
    if (message.starts_with(front)) return {path, message.substr(front.size())};
  }
  const std::size_t end = message.find("': ");
  if (!message.starts_with("'") || end == std::string::npos) return {};
  return {message.substr(1, end - 1), message.substr(end + 3)};
}

}  // namespace

bool SmallerSize::operator()(Size a, Size b) const {
  const auto key = [](Size size) {
    return std::tuple(std::int64_t(size.height) * size.width, size.height, size.width);
  };
  return key(a) < key(b);
}

Fault fault_from(const std::string& message, const std::string& path) {
  for (const std::string start : {"cannot open ", "cannot read the folder ", "cannot read "}) {
    if (!message.starts_with(start + "'")) continue;
    const Fault fault = quoted_fault(message.substr(start.size()), path);
    if (!fault.path.empty()) return {fault.path, start.substr(0, start.size() - 1) + ": " + fault.reason};
  }
  const Fault fault = quoted_fault(message, path);
  return fault.path.empty() ? Fault{path, message} : fault;
}

Fault fault_from(const std::exception& error, const std::string& path) {
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const std::length_error*>(&error);
  return memory ? Fault{path, "more memory needed than there is"} : fault_from(std::string(error.what()), path);
}

Size median(const SizeCounts& sizes) {
  std::int64_t total = 0;
  for (const auto& [size, count] : sizes) total += count;
  std::int64_t before = 0;
  for (const auto& [size, count] : sizes) {
    before += count;
    if (2 * before >= total) return size;
  }
  return {};
}

std::string report_as_text(const Report& report) {
  std::string text = base::shown(report.path) + ": " + report.kind + "\n";
  for (const SetPart& part : report.parts) text += part_text(part);
  for (const std::string& note : report.notes) text += base::shown(note) + "\n";
  if (report.faults.empty()) {
    return text + (report.headers_only ? "no fault found in the headers\n" : "whole: no damaged file\n");
  }
  text += count_text(std::int64_t(report.faults.size()), "fault", "faults") + ":\n";
  for (const Fault& fault : report.faults) {
    text += "  '" + base::shown(fault.path) + "': " + base::shown(fault.reason) + "\n";
  }
  return text;
}

std::string report_as_json(const Report& report) {
  Json parts = Json::array(), faults = Json::array();
  for (const SetPart& part : report.parts) parts.push_back(part_json(part));
  for (const Fault& fault : report.faults) faults.push_back({{"path", fault.path}, {"reason", fault.reason}});
  const Json json = {{"path", report.path}, {"kind", report.kind},   {"parts", parts},
                     {"faults", faults},    {"notes", report.notes}, {"headers_only", report.headers_only}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::data
