#include "lockstep/metrics/jsonl.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep::metrics {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(std::int64_t value) { return value; }
Json to_json(double value) { return std::isfinite(value) ? Json(value) : Json(shortest(value)); }
Json to_json(const std::string& value) { return value; }

template <class T>
Json to_json(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(to_json(value));
  return list;
}

}  // namespace

std::string json_line(const Event& event) {
  Json object;
  object["event"] = to_string(event.kind);
  object["time"] = to_json(event.time);
  for (const auto& [name, value] : event.fields)
    object[name] = std::visit([](const auto& held) { return to_json(held); }, value);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::metrics
