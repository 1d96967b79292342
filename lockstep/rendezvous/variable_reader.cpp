#include "lockstep/rendezvous/variable_reader.h"

#include <charconv>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::rendezvous {
namespace {

std::string range_text(int low, int high) {
  if (high == std::numeric_limits<int>::max()) return "a number from " + std::to_string(low);
  return "a number from " + std::to_string(low) + " to " + std::to_string(high);
}

}  // namespace

VariableReader::VariableReader(const GetEnv& get, std::string launcher) : get_(get), launcher_(std::move(launcher)) {}

std::optional<std::string> VariableReader::text(const char* name) const {
  const char* value = get_(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string VariableReader::required_text(const char* name) const {
  if (auto value = text(name)) return *value;
  throw UsageError("environment: " + std::string(name) + " is not set, although other variables of " + launcher_ +
                   " are");
}

int VariableReader::number(const char* name, int low, int high) const {
  const std::string value = required_text(name);
  int result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc() || end != value.data() + value.size() || result < low || result > high)
    throw UsageError("environment: " + std::string(name) + "=" + base::shown(value) + " is not " +
                     range_text(low, high));
  return result;
}

}  // namespace lockstep::rendezvous
