#include "lockstep/launch/report/all_nodes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep::launch {
namespace {

using Json = nlohmann::ordered_json;

// Objects within objects of a report are fewer. What writes JSON calls itself for each.
constexpr int kDeepest = 16;

// Nothing when it is no report.
std::optional<Json> parsed_report(const std::string& text) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth < kDeepest; };
  Json report = Json::parse(text, shallow, /*allow_exceptions=*/false);
  if (!report.is_object() || !report["attempts"].is_array()) return std::nullopt;
  return report;
}

Json entry_of(const NodeReport& node, const Json& report) {
  Json entry{{"rank", node.rank}, {"host", node.host}, {"workers", node.workers}, {"left", node.left}};
  entry["reported"] = report.is_object();
  for (const char* field : {"outcome", "exit_code", "stop_signal", "start_failure", "seconds"})
    entry[field] = report.is_object() && report.contains(field) ? report[field] : Json();
  return entry;
}

void add_host(Json& ends, const std::string& host) {
  for (Json& end : ends)
    if (end.is_object()) end["host"] = host;
}

void merge_attempt(Json& into, Json& from, const std::string& host) {
  if (from["ends"].is_array()) {
    add_host(from["ends"], host);
    into["ends"].insert(into["ends"].end(), from["ends"].begin(), from["ends"].end());
  }
  if (!into["first_failure"].is_null() || !from["first_failure"].is_object()) return;
  into["first_failure"] = from["first_failure"];
  into["first_failure_elsewhere"] = Json();
}

void merge_attempts(Json& job, Json& report, const std::string& host) {
  for (Json& from : report["attempts"]) {
    if (!from.is_object()) continue;
    const auto same = [&](const Json& attempt) { return attempt["generation"] == from["generation"]; };
    const auto into = std::ranges::find_if(job["attempts"], same);
    if (into != job["attempts"].end()) merge_attempt(*into, from, host);
  }
}

}  // namespace

std::string report_of_all(const std::string& own, const std::vector<NodeReport>& others) {
  Json job = Json::parse(own);
  const std::string host = job["host"];
  for (Json& attempt : job["attempts"]) add_host(attempt["ends"], host);
  int workers = job["workers"];
  Json nodes = Json::array({entry_of({.host = host, .rank = 0, .workers = workers}, job)});
  std::vector<NodeReport> sorted = others;
  std::ranges::stable_sort(sorted, {}, [](const NodeReport& node) { return std::pair(node.rank, !node.left); });
  for (const NodeReport& node : sorted) {
    std::optional<Json> report = node.text ? parsed_report(*node.text) : std::nullopt;
    nodes.push_back(entry_of(node, report.value_or(Json())));
    if (!node.left) workers += node.workers;
    if (report) merge_attempts(job, *report, node.host);
  }
  job["workers"] = workers;
  job["nodes"] = nodes;
  return job.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::launch
