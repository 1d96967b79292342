#include "lockstep/trace/rank_trace.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/text.h"
#include "lockstep/trace/flight_recorder.h"

namespace lockstep::trace {
namespace {

using json = nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kFormat = "lockstep trace";
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr int kMostInt = std::numeric_limits<int>::max();
// Deeper than any trace.
constexpr int kDeepest = 8;

std::string dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string with_number(const char* text, std::int64_t number) {
  return *text == '\0' || number < 0 ? text : std::string(text) + " " + std::to_string(number);
}

// What is at its default is left out.
ordered_json json_of(const TracedCall& call) {
  ordered_json value = {{"number", call.number}, {"group", call.group}, {"kind", call.kind}};
  if (!call.dtype.empty()) value.update({{"dtype", call.dtype}, {"sizes", call.sizes}, {"elements", call.elements}});
  if (!call.detail.empty()) value["detail"] = call.detail;
  if (!call.label.empty()) value["label"] = call.label;
  if (call.peer >= 0) value["peer"] = call.peer;
  value.update({{"step", call.step}, {"phase", call.phase}, {"begin", call.begin}, {"end", call.end}});
  return value;
}

[[noreturn]] void refuse(const std::string& what) { throw UsageError(what); }

std::int64_t whole(const json& number, const std::string& name, std::int64_t least, std::int64_t most) {
  const bool is_whole = number.is_number_integer();
  const bool is_huge = number.is_number_unsigned() && number.get<std::uint64_t>() > std::uint64_t(kMost);
  if (!is_whole || is_huge || number.get<std::int64_t>() < least || number.get<std::int64_t>() > most)
    refuse("'" + name + "' is " + (is_whole ? number.dump() : "no whole number") + "; from " + std::to_string(least) +
           " to " + std::to_string(most) + " expected");
  return number.get<std::int64_t>();
}

template <class T>
T whole_at(const json& value, const char* name, std::int64_t least, std::int64_t most) {
  return T(whole(value.at(name), name, least, most));
}

// Whatever stands there, it is shown on a terminal.
std::string text_at(const json& value, const char* name) {
  const json& text = value.at(name);
  if (!text.is_string()) refuse(std::string("'") + name + "' is no text");
  return base::shown(text.get<std::string>());
}

std::string text_if_any(const json& value, const char* name) {
  return value.contains(name) ? text_at(value, name) : "";
}

TracedCall call_of(const json& value, const RankTrace& trace) {
  TracedCall call{.number = whole_at<std::uint64_t>(value, "number", 1, kMost),
                  .group = whole_at<int>(value, "group", 0, int(trace.groups.size()) - 1),
                  .kind = text_at(value, "kind"),
                  .dtype = text_if_any(value, "dtype"),
                  .detail = text_if_any(value, "detail"),
                  .label = text_if_any(value, "label"),
                  .phase = text_at(value, "phase"),
                  .step = whole_at<std::uint64_t>(value, "step", 0, kMost),
                  .begin = whole_at<std::int64_t>(value, "begin", 0, kMost),
                  .end = whole_at<std::int64_t>(value, "end", 0, kMost)};
  if (value.contains("peer")) call.peer = whole_at<int>(value, "peer", 0, trace.world - 1);
  if (call.dtype.empty()) return call;
  call.elements = whole_at<std::int64_t>(value, "elements", 0, kMost);
  for (const json& size : value.at("sizes")) call.sizes.push_back(whole(size, "size", 0, kMost));
  return call;
}

TracedGroup group_of(const json& value, int world) {
  TracedGroup group{.name = text_at(value, "name"), .ranks = {}};
  for (const json& rank : value.at("ranks"))
    group.ranks.push_back(int(whole(rank, "rank of group " + group.name, 0, world - 1)));
  return group;
}

Failure failure_of(const json& value) {
  return {.rank = whole_at<int>(value, "rank", -1, kMostInt),
          .step = whole_at<std::uint64_t>(value, "step", 0, kMost),
          .phase = text_at(value, "phase"),
          .cause = text_at(value, "cause")};
}

RankTrace trace_of(const json& root) {
  if (!root.is_object() || !root.contains("format") || root["format"] != kFormat) refuse("is no trace of a rank");
  if (const auto version = whole_at<std::int64_t>(root, "version", 0, kMost); version != kTraceVersion)
    refuse("is a trace of version " + std::to_string(version) + "; this program reads version " +
           std::to_string(kTraceVersion));
  RankTrace trace{.run = text_at(root, "run"),
                  .attempt = whole_at<int>(root, "attempt", 0, kMostInt),
                  .rank = 0,
                  .world = whole_at<int>(root, "world", 1, kMostInt),
                  .host = text_at(root, "host"),
                  .pid = whole_at<int>(root, "pid", 0, kMostInt),
                  .time = whole_at<std::int64_t>(root, "time", 0, kMost),
                  .step = whole_at<std::uint64_t>(root, "step", 0, kMost),
                  .phase = text_at(root, "phase"),
                  .begun = whole_at<std::uint64_t>(root, "begun", 0, kMost)};
  trace.rank = whole_at<int>(root, "rank", 0, trace.world - 1);
  if (!root.at("failure").is_null()) trace.failure = failure_of(root.at("failure"));
  std::set<std::string> names;
  for (const json& group : root.at("groups")) {
    trace.groups.push_back(group_of(group, trace.world));
    const auto& [name, ranks] = trace.groups.back();
    if (!names.insert(name).second) refuse("has group '" + name + "' twice");
    // Its calls are those of one of the ranks, for whoever explains them.
    if (std::find(ranks.begin(), ranks.end(), trace.rank) == ranks.end())
      refuse("has group '" + name + "', which rank " + std::to_string(trace.rank) + " is not in");
  }
  for (const json& call : root.at("calls")) trace.calls.push_back(call_of(call, trace));
  return trace;
}

}  // namespace

TracedCall told_call(const Call& call) {
  const bool has_tensor = *call.dtype != '\0';
  TracedCall told{.number = call.number,
                  .kind = call.kind,
                  .dtype = call.dtype,
                  .elements = has_tensor ? call.elements : 0,
                  .label = with_number(call.label, call.label_number),
                  .phase = call.phase,
                  .step = call.step,
                  .peer = call.peer};
  if (has_tensor)
    told.sizes.assign(call.sizes.begin(), call.sizes.begin() + std::min<std::size_t>(call.dimensions, Call::kSizes));
  if (*call.detail_text != '\0')
    told.detail = std::string(call.detail_name) + " " + call.detail_text;
  else
    told.detail = with_number(call.detail_name, call.detail);
  return told;
}

std::string format_trace(const RankTrace& trace) {
  ordered_json head = {{"format", kFormat},    {"version", kTraceVersion},
                       {"run", trace.run},     {"attempt", trace.attempt},
                       {"rank", trace.rank},   {"world", trace.world},
                       {"host", trace.host},   {"pid", trace.pid},
                       {"time", trace.time},   {"step", trace.step},
                       {"phase", trace.phase}, {"failure", nullptr},
                       {"begun", trace.begun}, {"groups", ordered_json::array()}};
  if (trace.failure)
    head["failure"] = {{"rank", trace.failure->rank},
                       {"step", trace.failure->step},
                       {"phase", trace.failure->phase},
                       {"cause", trace.failure->cause}};
  for (const TracedGroup& group : trace.groups)
    head["groups"].push_back({{"name", group.name}, {"ranks", group.ranks}});
  std::string text = dump(head);
  text.back() = ',';
  text += "\"calls\":[";
  for (const TracedCall& call : trace.calls) text += (&call == trace.calls.data() ? "\n" : ",\n") + dump(json_of(call));
  return text + "\n]}\n";
}

RankTrace parse_trace(std::string_view text, const std::string& name) {
  try {
    // What is nested too deep is refused while it is parsed.
    return trace_of(json::parse(text, [](int depth, json::parse_event_t, const json&) {
      if (depth > kDeepest) refuse("is no trace of a rank: nested too deep");
      return true;
    }));
  } catch (const UsageError& error) {
    throw UsageError(name + ": " + error.what());
  } catch (const json::parse_error& error) {
    throw UsageError(name + ": is no whole trace: cut short or damaged at byte " + std::to_string(error.byte));
  } catch (const json::exception& error) {
    throw UsageError(name + ": is no trace of a rank: " + base::shown(error.what()));
  }
}

}  // namespace lockstep::trace
