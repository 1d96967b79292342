#include "lockstep/flags/flag_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::flags {
namespace {

using FlagJson = nlohmann::ordered_json;

}  // namespace

FlagFile read_flag_file(std::string_view text, const std::string& name) {
  std::set<std::string> keys;
  std::string twice;
  const auto check = [&](int depth, FlagJson::parse_event_t event, FlagJson& value) {
    if (depth > 8) throw UsageError(name + " is nested too deep: flags are numbers, texts, true, false, or lists");
    if (event != FlagJson::parse_event_t::key || depth != 1) return true;
    std::string key = value.get<std::string>();
    std::replace(key.begin(), key.end(), '-', '_');
    if (!keys.insert(key).second && twice.empty()) twice = key;
    return true;
  };
  FlagFile file{.name = name, .values = {}};
  try {
    const FlagJson all = FlagJson::parse(text, check);
    if (!all.is_object()) throw UsageError(name + " is no JSON object: {\"batch_size\": 64}");
    if (!twice.empty()) throw UsageError(name + ": '" + twice + "' stands there twice");
    for (const auto& [key, value] : all.items()) {
      file.values.emplace_back(key, value.dump());
      std::replace(file.values.back().first.begin(), file.values.back().first.end(), '-', '_');
    }
  } catch (const FlagJson::parse_error& error) {
    throw UsageError(name + " is no valid JSON at offset " + std::to_string(error.byte > 0 ? error.byte - 1 : 0));
  } catch (const FlagJson::exception&) {  // a number beyond all
    throw UsageError(name + " is no valid JSON");
  }
  return file;
}

}  // namespace lockstep::flags
