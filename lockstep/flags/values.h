#pragma once

// What flags take: values of the usual types, each checked. They keep a reference to `place`, where the value goes and
// whose content is the default. A flag of another type fills in a Value itself.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/text.h"
#include "lockstep/flags/table.h"

namespace lockstep::flags {

/// A text that is not empty, `word` in the help: "DIR".
Value text(std::string& place, const std::string& word);

/// One of `names`.
Value one_of(std::string& place, const std::vector<std::string>& names);

/// Some of `names`, with commas between them.
Value several_of(std::vector<std::string>& place, const std::vector<std::string>& names);

/// A switch that makes `place` true, or false.
Value on(bool& place);
Value off(bool& place);

/// The same value, which may be left out: then it is `alone`. Not for a table whose operands stand anywhere.
Value or_alone(const std::string& alone, Value value);

/// Which real numbers a flag takes; they are finite always.
struct Reals {
  const char* wanted;  ///< "a number of 0 or more"
  bool (*holds)(double);
};
inline constexpr Reals kNotNegative{"a number of 0 or more", [](double x) { return x >= 0; }};
inline constexpr Reals kPositive{"a number above 0", [](double x) { return x > 0; }};

/// A real number, `word` in the help: "SECONDS".
Value real(double& place, const Reals& reals, const std::string& word = "X");
Value real(std::optional<double>& place, const Reals& reals, const std::string& word = "X");

/// Whole numbers from `least` to `most`, each above the one before, with commas between them.
Value rising(std::vector<std::int64_t>& place, std::int64_t least, std::int64_t most);

/// Real numbers with commas between them.
Value reals(std::vector<double>& place, const Reals& reals);

namespace detail {

/// The whole number that `value` says. UsageError as Value::read throws.
std::int64_t read_integer(const std::string& name, const std::string& value, std::int64_t least, std::int64_t most);

/// Which of `names` it is. UsageError as Value::read throws.
std::size_t read_name(const std::string& name, const std::string& value, const std::vector<std::string>& names);

std::string quoted_json(const std::string& text);

// The number; "" of none.
template <class T>
std::string digits_of(const T& number) {
  return std::to_string(number);
}
template <class T>
std::string digits_of(const std::optional<T>& number) {
  return number ? std::to_string(*number) : "";
}

template <class T>
struct Number {
  using type = T;
};
template <class T>
struct Number<std::optional<T>> {
  using type = T;
};

}  // namespace detail

/// A whole number from `least` to `most`. T: an integer that holds them, or an optional of one, without a value until
/// one is given.
template <class T>
Value integer(T& place, std::int64_t least, std::int64_t most) {
  const auto read = [&place, least, most](const std::string& name, const std::string& value) {
    place = static_cast<typename detail::Number<T>::type>(detail::read_integer(name, value, least, most));
  };
  const auto json = [&place] {
    const std::string digits = detail::digits_of(place);
    return digits.empty() ? "null" : digits;
  };
  return {.word = "N", .initial = detail::digits_of(place), .read = read, .json = json};
}

/// A value by its name; `place` holds one of them.
template <class T>
Value choice(T& place, const std::vector<std::pair<std::string, T>>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) names.push_back(name);
  const auto read = [&place, choices, names](const std::string& name, const std::string& value) {
    place = choices[detail::read_name(name, value, names)].second;
  };
  const auto name_of_place = [&place, choices]() -> std::string {
    for (const auto& [name, value] : choices)
      if (value == place) return name;
    return "";
  };
  return {.word = "NAME",
          .choices = base::join(names, "|"),
          .initial = name_of_place(),
          .read = read,
          .json = [name_of_place] { return detail::quoted_json(name_of_place()); }};
}

}  // namespace lockstep::flags
