#include "lockstep/flags/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::flags {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& value, const std::string& wanted) {
  throw UsageError(name + " '" + value + "': " + wanted);
}

void require_some(const std::string& name, const std::string& value) {
  if (value.empty()) throw UsageError(name + " needs a value, found none");
}

// The record of a run's flags is JSON, which has no other text.
void require_utf8(const std::string& name, const std::string& value) {
  try {
    detail::quoted_json(value);
  } catch (const nlohmann::json::exception&) {
    refuse(name, base::shown(value), "not UTF-8; wanted UTF-8");
  }
}

// The number that is all of `value`; `wanted` says which numbers are right.
template <class T>
T read_number(const std::string& name, const std::string& value, const std::string& kind, const std::string& wanted) {
  require_some(name, value);
  T number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error == std::errc::invalid_argument || stop != end) refuse(name, value, "not " + kind + "; wanted " + wanted);
  if (error != std::errc()) refuse(name, value, "out of range; wanted " + wanted);
  return number;
}

double read_real(const std::string& name, const std::string& value, const Reals& reals) {
  const auto number = read_number<double>(name, value, "a number", reals.wanted);
  if (!std::isfinite(number) || !reals.holds(number))
    refuse(name, value, std::string("out of range; wanted ") + reals.wanted);
  return number;
}

std::string shortest_digits(double number) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, number).ptr};
}

Value switch_to(bool& place, bool value) {
  return {.read = [&place, value](const std::string&, const std::string&) { place = value; },
          .json = [&place] { return std::string(place ? "true" : "false"); },
          .negated = !value};
}

}  // namespace

namespace detail {

std::int64_t read_integer(const std::string& name, const std::string& value, std::int64_t least, std::int64_t most) {
  const std::string wanted = "an integer from " + std::to_string(least) + " to " + std::to_string(most);
  const auto number = read_number<std::int64_t>(name, value, "an integer", wanted);
  if (number < least || number > most) refuse(name, value, "out of range; wanted " + wanted);
  return number;
}

std::size_t read_name(const std::string& name, const std::string& value, const std::vector<std::string>& names) {
  require_some(name, value);
  const auto found = std::find(names.begin(), names.end(), value);
  if (found == names.end()) throw UsageError(name + ": " + base::unknown_name("value", value, names));
  return std::size_t(found - names.begin());
}

std::string quoted_json(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace detail

Value text(std::string& place, const std::string& word) {
  const auto read = [&place](const std::string& name, const std::string& value) {
    require_some(name, value);
    require_utf8(name, value);
    place = value;
  };
  return {.word = word, .initial = place, .read = read, .json = [&place] { return detail::quoted_json(place); }};
}

Value one_of(std::string& place, const std::vector<std::string>& names) {
  const auto read = [&place, names](const std::string& name, const std::string& value) {
    place = names[detail::read_name(name, value, names)];
  };
  return {.word = "NAME", .choices = base::join(names, "|"), .initial = place, .read = read, .json = [&place] {
            return detail::quoted_json(place);
          }};
}

Value several_of(std::vector<std::string>& place, const std::vector<std::string>& names) {
  const auto read = [&place, names](const std::string& name, const std::string& value) {
    require_some(name, value);
    std::vector<std::string> chosen;
    std::istringstream stream(value);
    for (std::string word; std::getline(stream, word, ',');)
      chosen.push_back(names[detail::read_name(name, word, names)]);
    place = chosen;
  };
  return {.word = "NAMES", .choices = base::join(names, ","), .read = read, .json = [&place] {
            return nlohmann::json(place).dump();
          }};
}

Value on(bool& place) { return switch_to(place, true); }

Value off(bool& place) { return switch_to(place, false); }

Value or_alone(const std::string& alone, Value value) {
  value.alone = alone;
  return value;
}

Value real(double& place, const Reals& reals, const std::string& word) {
  const auto read = [&place, reals](const std::string& name, const std::string& value) {
    place = read_real(name, value, reals);
  };
  return {.word = word, .initial = shortest_digits(place), .read = read, .json = [&place] {
            return nlohmann::json(place).dump();
          }};
}

Value real(std::optional<double>& place, const Reals& reals, const std::string& word) {
  const auto read = [&place, reals](const std::string& name, const std::string& value) {
    place = read_real(name, value, reals);
  };
  return {.word = word, .initial = place ? shortest_digits(*place) : "", .read = read, .json = [&place] {
            return place ? nlohmann::json(*place).dump() : "null";
          }};
}

Value reals(std::vector<double>& place, const Reals& reals) {
  const auto read = [&place, reals](const std::string& name, const std::string& value) {
    require_some(name, value);
    std::vector<double> numbers;
    std::istringstream stream(value);
    for (std::string word; std::getline(stream, word, ',');) numbers.push_back(read_real(name, word, reals));
    place = numbers;
  };
  return {.word = "X,X", .read = read, .json = [&place] { return nlohmann::json(place).dump(); }};
}

Value rising(std::vector<std::int64_t>& place, std::int64_t least, std::int64_t most) {
  const auto read = [&place, least, most](const std::string& name, const std::string& value) {
    require_some(name, value);
    std::vector<std::int64_t> numbers;
    std::istringstream stream(value);
    for (std::string word; std::getline(stream, word, ',');) {
      numbers.push_back(detail::read_integer(name, word, least, most));
      if (numbers.size() > 1 && numbers.back() <= numbers.end()[-2])
        refuse(name, value, "each number must be above the one before");
    }
    place = numbers;
  };
  return {.word = "N,N", .read = read, .json = [&place] { return nlohmann::json(place).dump(); }};
}

}  // namespace lockstep::flags
