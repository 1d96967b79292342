#include "lockstep/data/inspect/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
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

std::string kinds_text(const Part& part) {
  std::vector<std::string> words;
  for (const auto& [kind, count] : part.kinds) words.push_back(std::to_string(count) + " " + kind);
  return base::join(words);
}

std::string part_text(const Part& part) {
  std::string text = part.name.empty() ? "" : part.name + ": ";
  text += count_text(part.pictures, "picture", "pictures") + ", ";
  if (!part.classes.empty()) text += count_text(std::int64_t(part.classes.size()), "class", "classes") + ", ";
  text += base::size_text(part.bytes) + "\n";
  std::size_t width = 0;
  for (const ClassCount& each : part.classes) width = std::max(width, each.name.size());
  for (const ClassCount& each : part.classes) {
    text += "  " + each.name + std::string(width - each.name.size(), ' ') + "  " + std::to_string(each.pictures) + "\n";
  }
  if (!part.sizes.empty()) text += "  sizes (height x width): " + sizes_text(part.sizes) + "\n";
  if (!part.kinds.empty()) text += "  kinds: " + kinds_text(part) + "\n";
  return text;
}

Json size_json(Size size) { return {{"height", size.height}, {"width", size.width}}; }

Json part_json(const Part& part) {
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

}  // namespace

bool SmallerSize::operator()(Size a, Size b) const {
  const auto key = [](Size size) {
    return std::tuple(std::int64_t(size.height) * size.width, size.height, size.width);
  };
  return key(a) < key(b);
}

Fault fault_from(const std::string& message, const std::string& path) {
  const std::string front = "'" + path + "': ";
  if (message.starts_with(front)) return {path, message.substr(front.size())};
  const std::size_t end = message.find("': ");
  if (!message.starts_with("'") || end == std::string::npos) return {path, message};
  return {message.substr(1, end - 1), message.substr(end + 3)};
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
  std::string text = report.path + ": " + report.kind + "\n";
  for (const Part& part : report.parts) text += part_text(part);
  if (report.faults.empty()) {
    return text + (report.headers_only ? "no fault found in the headers\n" : "whole: no damaged file\n");
  }
  text += count_text(std::int64_t(report.faults.size()), "fault", "faults") + ":\n";
  for (const Fault& fault : report.faults) text += "  '" + fault.path + "': " + fault.reason + "\n";
  return text;
}

std::string report_as_json(const Report& report) {
  Json parts = Json::array(), faults = Json::array();
  for (const Part& part : report.parts) parts.push_back(part_json(part));
  for (const Fault& fault : report.faults) faults.push_back({{"path", fault.path}, {"reason", fault.reason}});
  const Json json = {{"path", report.path},
                     {"kind", report.kind},
                     {"parts", parts},
                     {"faults", faults},
                     {"headers_only", report.headers_only}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::data
