#include "lockstep/data/readers/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

namespace lockstep::data {
namespace {

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\v\f";  // what Python's float() passes over
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// from_chars knows no plus sign.
std::string_view without_plus(std::string_view text) {
  const bool plus = text.size() > 1 && text[0] == '+' && text[1] != '-';
  return plus ? text.substr(1) : text;
}

template <class T>
std::errc whole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return std::errc::invalid_argument;
  return error;
}

// Whether the first digit that is not 0 stands behind the point, the exponent applied.
bool is_below_one(std::string_view text) {
  const std::size_t e = text.find_first_of("eE");
  const std::string_view digits = text.substr(0, e);
  std::int64_t exponent = 0;
  if (e != std::string_view::npos) {
    const std::string_view power = without_plus(text.substr(e + 1));
    if (whole(power, exponent) != std::errc()) return power.starts_with('-');  // more than a text is long
  }
  const std::size_t first = digits.find_first_of("123456789");
  if (first == std::string_view::npos) return true;
  const auto point = std::int64_t(std::min(digits.find('.'), digits.size()));
  const std::int64_t before = point - std::int64_t(first);  // digits from the first one to the point
  return exponent < (before > 0 ? 1 - before : -before);
}

// Out of range says nothing about which end. A long double has room for more, but not for all.
bool is_tiny(std::string_view text, double& value) {
  long double wide = 0;
  const std::errc error = whole(text, wide);
  if (error == std::errc::result_out_of_range && is_below_one(text)) {
    value = text.starts_with('-') ? -0.0 : 0.0;
    return true;
  }
  if (error != std::errc() || std::fabs(wide) > 1) return false;
  value = double(wide);
  return true;
}

template <class T>
NumberFault parse_to(std::string_view text, void* value) {
  return parse_number(text, *static_cast<T*>(value));
}

}  // namespace

NumberFault parse_number(std::string_view text, double& value) {
  text = without_plus(without_blanks(text));
  if (text.empty()) return NumberFault::empty;
  if (text.find('(') != std::string_view::npos) return NumberFault::no_number;  // nan(text) is none to Python
  double parsed = 0;
  const std::errc error = whole(text, parsed);
  if (error == std::errc::invalid_argument) return NumberFault::no_number;
  if (error == std::errc::result_out_of_range && !is_tiny(text, parsed)) return NumberFault::out_of_range;
  // Some versions of from_chars call infinity the value of 1e400.
  if (std::isinf(parsed) && text.find_first_of("0123456789") != std::string_view::npos)
    return NumberFault::out_of_range;
  value = parsed;
  return NumberFault::none;
}

NumberFault parse_number(std::string_view text, float& value) {
  double wide = 0;
  const NumberFault fault = parse_number(text, wide);
  if (fault != NumberFault::none) return fault;
  if (std::isinf(float(wide)) && !std::isinf(wide)) return NumberFault::out_of_range;
  value = float(wide);
  return NumberFault::none;
}

NumberFault parse_number(std::string_view text, std::int64_t& value) {
  text = without_plus(without_blanks(text));
  if (text.empty()) return NumberFault::empty;
  std::int64_t parsed = 0;
  const std::errc error = whole(text, parsed);
  if (error == std::errc::result_out_of_range) return NumberFault::out_of_range;
  if (error != std::errc()) return NumberFault::no_number;
  value = parsed;
  return NumberFault::none;
}

const NumberType NumberType::float32 = {"float32", sizeof(float), "a number", parse_to<float>};
const NumberType NumberType::float64 = {"float64", sizeof(double), "a number", parse_to<double>};
const NumberType NumberType::int64 = {"int64", sizeof(std::int64_t), "a whole number", parse_to<std::int64_t>};

}  // namespace lockstep::data
