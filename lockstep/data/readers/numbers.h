#pragma once

// Numbers written as text, with the value that Python gives them.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::data {

enum class NumberFault { none, empty, no_number, out_of_range };

/// The double that Python's float(text) gives: nearest, ties to even; blanks around it, a plus sign, inf and nan are
/// allowed, underscores between digits are not. Numbers too small for a double are 0, as there; out_of_range where
/// float() gives inf for a finite number. Independent of the locale. `value` is set only when nothing is wrong.
NumberFault parse_number(std::string_view text, double& value);

/// That double, rounded to a float; out_of_range when that is infinite and the text is not.
NumberFault parse_number(std::string_view text, float& value);

/// As Python's int(text): digits and a sign. A fraction or exponent is no number here.
NumberFault parse_number(std::string_view text, std::int64_t& value);

/// A type of number, for code that learns at run time which.
struct NumberType {
  const char* name;      ///< "float32"
  std::size_t bytes;     ///< of a value
  const char* expected;  ///< "a number", "a whole number"
  NumberFault (*parse)(std::string_view text, void* value);

  static const NumberType float32, float64, int64;
};

}  // namespace lockstep::data
