// What was found, in words and as JSON.

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "lockstep/trace/explain.h"

namespace lockstep::trace {
namespace {

using nlohmann::ordered_json;

// "14:03:05.120", UTC: ranks may be on machines of several time zones.
std::string clock_text(std::int64_t microseconds) {
  const std::time_t seconds = microseconds / 1'000'000;
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "?";
  char text[32];
  std::snprintf(text, sizeof text, "%02d:%02d:%02d.%03d", parts.tm_hour, parts.tm_min, parts.tm_sec,
                int(microseconds / 1000 % 1000));
  return text;
}

std::string later_text(std::int64_t microseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f ms later", double(microseconds) / 1000);
  return text;
}

std::string list_text(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

std::string named(const std::vector<int>& ranks) { return (ranks.size() == 1 ? "rank " : "ranks ") + list_text(ranks); }

std::string where(const std::string& group, const TracedCall& call) {
  return (call.peer < 0 ? "collective " : "message ") + std::to_string(call.number) + " of " + group;
}

std::string stop_text(const Stop& stop) {
  std::string text = "stopped in " + where(stop.group, stop.call) + ": " + describe(stop.call) + "\n  arrived: ";
  for (const Arrival& arrival : stop.arrived) {
    const std::int64_t first = stop.arrived.front().time;
    const bool is_first = &arrival == stop.arrived.data();
    text += (is_first ? "rank " : ", rank ") + std::to_string(arrival.rank) + " " +
            (is_first ? "at " + clock_text(first) : later_text(arrival.time - first));
  }
  text += "\n";
  if (!stop.absent.empty()) text += "  not arrived: " + named(stop.absent) + "\n";
  if (!stop.without_file.empty()) text += "  no trace of: " + named(stop.without_file) + "\n";
  return text;
}

std::string last_text(const LastDeed& last) {
  std::string text = "rank " + std::to_string(last.rank) + ": ";
  if (!last.has_file) {
    return text + "no trace; " +
           (last.call ? "it took part in " + where(last.group, *last.call) + ", " + describe(*last.call)
                      : "nothing is known that it took part in") +
           "\n";
  }
  text += "at step " + std::to_string(last.step) + ", " + last.phase + "; ";
  if (!last.call) return text + "it has called nothing\n";
  return text + "its last: " + where(last.group, *last.call) + ", " + describe(*last.call) + ", " +
         (last.call->end == 0 ? "under way since " + clock_text(last.call->begin)
                              : "ended at " + clock_text(last.call->end)) +
         "\n";
}

ordered_json told(const TracedCall& call) {
  ordered_json value = {{"number", call.number}, {"kind", call.kind}, {"text", describe(call)}, {"step", call.step}};
  if (!call.dtype.empty()) value.update({{"dtype", call.dtype}, {"sizes", call.sizes}});
  if (!call.label.empty()) value["label"] = call.label;
  if (call.peer >= 0) value["peer"] = call.peer;
  value.update({{"begin", call.begin}, {"end", call.end}});
  return value;
}

ordered_json told(const Mismatch& mismatch) {
  ordered_json sides = ordered_json::array();
  for (const Side& side : mismatch.sides) sides.push_back({{"ranks", side.ranks}, {"call", told(side.call)}});
  return {{"group", mismatch.group}, {"number", mismatch.number}, {"sides", sides}};
}

ordered_json told(const Stop& stop) {
  ordered_json arrived = ordered_json::array();
  for (const Arrival& arrival : stop.arrived) arrived.push_back({{"rank", arrival.rank}, {"time", arrival.time}});
  return {{"group", stop.group},
          {"call", told(stop.call)},
          {"arrived", arrived},
          {"not_arrived", stop.absent},
          {"no_trace", stop.without_file}};
}

ordered_json told(const LastDeed& last) {
  ordered_json value = {{"rank", last.rank}, {"has_trace", last.has_file}};
  if (last.has_file) value.update({{"step", last.step}, {"phase", last.phase}});
  value["group"] = last.group;
  value["call"] = last.call ? told(*last.call) : ordered_json();
  return value;
}

template <class T>
ordered_json list_of(const std::vector<T>& items) {
  ordered_json list = ordered_json::array();
  for (const T& item : items) list.push_back(told(item));
  return list;
}

}  // namespace

std::string describe(const TracedCall& call) {
  std::string inside;
  if (!call.dtype.empty()) {
    for (const std::int64_t size : call.sizes) inside += (inside.empty() ? "" : "x") + std::to_string(size);
    inside += (inside.empty() ? "" : " ") + call.dtype;
  }
  if (call.peer >= 0)
    inside += std::string(inside.empty() ? "" : ", ") + (call.kind == "send" ? "to" : "from") + " rank " +
              std::to_string(call.peer);
  if (!call.detail.empty()) inside += (inside.empty() ? "" : ", ") + call.detail;
  return call.kind + "(" + inside + ")" + (call.label.empty() ? "" : ", " + call.label) +
         (call.step == 0 ? "" : ", step " + std::to_string(call.step));
}

std::string explanation_text(const Explanation& e) {
  std::string text = "run " + e.run + ", attempt " + std::to_string(e.attempt) + ": traces of " + named(e.ranks) +
                     " of " + std::to_string(e.world) + "; times are UTC\n";
  if (e.failure) text += "the group ended by: " + e.failure->to_string() + "\n";
  for (const Mismatch& mismatch : e.mismatches) {
    text += "ranks disagree in collective " + std::to_string(mismatch.number) + " of " + mismatch.group + ":\n";
    for (const Side& side : mismatch.sides) text += "  " + named(side.ranks) + ": " + describe(side.call) + "\n";
  }
  for (const Stop& stop : e.stops) text += stop_text(stop);
  for (const LastDeed& last : e.last) text += last_text(last);
  return text + (e.culprits.empty() ? "verdict: " : "culprit: ") + e.verdict + "\n";
}

std::string explanation_json(const Explanation& e) {
  ordered_json root = {{"run", e.run}, {"attempt", e.attempt}, {"world", e.world}, {"ranks", e.ranks}};
  root["no_trace"] = e.without_file;
  root["failure"] = nullptr;
  if (e.failure)
    root["failure"] = {
        {"rank", e.failure->rank}, {"step", e.failure->step}, {"phase", e.failure->phase}, {"cause", e.failure->cause}};
  root["mismatches"] = list_of(e.mismatches);
  root["stops"] = list_of(e.stops);
  root["last"] = list_of(e.last);
  root["culprits"] = e.culprits;
  root["verdict"] = e.verdict;
  return root.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::trace
