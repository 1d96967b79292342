#include "lockstep/checkpoint/store/state_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/input_file.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

// Deeper than any state; functions that call themselves for each level would find the end of the stack.
constexpr int kDeepest = 100;
constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kLargestState = 1'000'000'000;

// What is nested too deep is refused while it is parsed.
Json parsed(std::string_view text, const std::string& what) {
  const auto check = [&](int depth, nlohmann::json::parse_event_t event, Json&) {
    const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= kDeepest)
      throw UsageError(what + " is nested more than " + std::to_string(kDeepest) + " deep");
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::parse_error& error) {
    throw UsageError(what + " is no valid JSON at offset " + std::to_string(error.byte > 0 ? error.byte - 1 : 0));
  } catch (const Json::exception&) {  // a number beyond all
    throw UsageError(what + " is no valid JSON");
  }
}

// JSON has no words for what is no number.
Json number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

std::string hex(const std::string& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// Reads keys of one object; every fault names the key.
class Reader {
 public:
  Reader(const Json& object, const std::string& path, std::string inside = "")
      : object_(object), path_(path), inside_(std::move(inside)) {
    if (!object_.is_object()) throw UsageError("'" + base::shown(path_) + "': " + inside_ + "is no object");
  }

  const Json& at(const std::string& key, const char* wanted, bool right) const {
    if (!right) fail(key, wanted);
    return object_[key];
  }
  bool has(const std::string& key) const { return object_.contains(key); }
  std::uint64_t count(const std::string& key) const {
    const bool right = has(key) && object_[key].is_number_unsigned();
    return at(key, "a number from 0", right).get<std::uint64_t>();
  }
  /// One that fits an int.
  int small(const std::string& key) const {
    const std::uint64_t value = count(key);
    if (value > std::uint64_t(std::numeric_limits<int>::max())) fail(key, "a number below 2^31");
    return int(value);
  }
  std::int64_t samples(const std::string& key) const {
    const std::uint64_t value = count(key);
    if (value > std::uint64_t(std::numeric_limits<std::int64_t>::max())) fail(key, "a number below 2^63");
    return std::int64_t(value);
  }
  std::int64_t whole(const std::string& key) const {
    const bool right = has(key) && object_[key].is_number_integer() &&
                       (!object_[key].is_number_unsigned() || object_[key].get<std::uint64_t>() < (1ULL << 63));
    return at(key, "a whole number below 2^63", right).get<std::int64_t>();
  }
  double real(const std::string& key) const {
    const double infinity = std::numeric_limits<double>::infinity();
    if (has(key) && object_[key] == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (has(key) && object_[key] == "inf") return infinity;
    if (has(key) && object_[key] == "-inf") return -infinity;
    return at(key, "a number, \"nan\", \"inf\" or \"-inf\"", has(key) && object_[key].is_number()).get<double>();
  }
  std::string text(const std::string& key) const {
    return at(key, "a text", has(key) && object_[key].is_string()).get<std::string>();
  }
  bool yes(const std::string& key) const {
    return at(key, "true or false", has(key) && object_[key].is_boolean()).get<bool>();
  }
  std::string bytes(const std::string& key) const {
    const std::string digits = text(key);
    if (digits.size() % 2 != 0 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
      fail(key, "bytes as pairs of hexadecimal digits");
    std::string bytes;
    for (std::size_t i = 0; i < digits.size(); i += 2) bytes += char(std::stoi(digits.substr(i, 2), nullptr, 16));
    return bytes;
  }
  Reader inside(const std::string& key) const {
    const Json& object = at(key, "an object", has(key) && object_[key].is_object());
    return {object, path_, inside_ + key + "."};
  }
  const Json& object() const { return object_; }

 private:
  [[noreturn]] void fail(const std::string& key, const char* wanted) const {
    throw UsageError("'" + base::shown(path_) + "': '" + base::shown(inside_ + key).substr(0, 200) + "' is " +
                     (has(key) ? "something else" : "missing") + ", must be " + wanted);
  }

  const Json& object_;
  const std::string& path_;
  std::string inside_;
};

}  // namespace

std::string format_state(const SavedState& state) {
  Json kept = Json::object();
  for (const auto& [name, bytes] : state.kept) kept[name] = hex(bytes);
  Json json = {{"format", kVersion},
               {"step", state.step},
               {"record",
                {{"loss", number(state.loss)},
                 {"gradient_norm", number(state.gradient_norm)},
                 {"samples", state.samples},
                 {"skipped", state.skipped}}},
               {"seed", state.seed},
               {"shards", state.shards},
               {"threads", state.threads},
               {"optimizer", {{"kind", state.optimizer}, {"arrays", state.optimizer_arrays}}},
               {"updates", state.updates},
               {"average", state.average},
               {"kept", std::move(kept)},
               {"versions", state.versions},
               {"extra", parsed(state.extra, "checkpoint: extra")}};
  if (state.average_updates != 0) json["average_updates"] = state.average_updates;
  if (!state.place.empty()) json["place"] = state.place;
  if (state.metric) json["metric"] = number(*state.metric);
  try {
    return json.dump(2) + "\n";
  } catch (const Json::type_error&) {
    throw UsageError("checkpoint: a name of a parameter or of kept bytes, or extra, is no UTF-8");
  }
}

SavedState parse_state(std::string_view text, const std::string& path) {
  const Json json = parsed(text, "'" + base::shown(path) + "'");
  const Reader root(json, path);
  if (const std::uint64_t version = root.count("format"); version != kVersion)
    throw UsageError("'" + base::shown(path) + "': format " + std::to_string(version) + ", this program reads " +
                     std::to_string(kVersion));
  SavedState state;
  state.step = root.count("step");
  const Reader record = root.inside("record");
  state.loss = record.real("loss");
  state.gradient_norm = record.real("gradient_norm");
  state.samples = record.samples("samples");
  state.skipped = record.count("skipped");
  state.seed = root.count("seed");
  state.shards = root.small("shards");
  state.threads = root.small("threads");
  const Reader optimizer = root.inside("optimizer");
  state.optimizer = optimizer.text("kind");
  state.optimizer_arrays = optimizer.small("arrays");
  state.average = root.yes("average");
  if (root.has("average_updates")) state.average_updates = root.count("average_updates");
  const Reader updates = root.inside("updates"), kept = root.inside("kept"), versions = root.inside("versions");
  for (const auto& item : updates.object().items()) state.updates.emplace(item.key(), updates.count(item.key()));
  for (const auto& item : kept.object().items()) state.kept.emplace(item.key(), kept.bytes(item.key()));
  for (const auto& item : versions.object().items()) state.versions.emplace(item.key(), versions.text(item.key()));
  if (root.has("place")) {  // earlier builds wrote none
    const Reader place = root.inside("place");
    for (const auto& item : place.object().items()) state.place.emplace(item.key(), place.whole(item.key()));
  }
  if (root.has("metric")) state.metric = root.real("metric");
  if (!root.has("extra"))
    throw UsageError("'" + base::shown(path) + "': 'extra' is missing, must be JSON, null at least");
  state.extra = json["extra"].dump();
  return state;
}

SavedState read_state(const std::string& path) {
  const std::string file = path + "/" + kStateName;
  return parse_state(InputFile(file).text(kLargestState), file);
}

}  // namespace lockstep::checkpoint
