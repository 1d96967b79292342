#include "lockstep/checkpoint/files/elements.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/small_float.h"
#include "lockstep/checkpoint/store/tensor_file.h"

namespace lockstep::checkpoint {
namespace {

template <class Number>
Number loaded(const std::byte* data, std::size_t i) {
  Number number;
  std::memcpy(&number, data + i * sizeof number, sizeof number);
  return number;
}

template <class Number>
void store(std::byte* data, std::size_t i, Number number) {
  std::memcpy(data + i * sizeof number, &number, sizeof number);
}

// float8 (OCP's E4M3 without infinities, E5M2).
double from_e5m2(std::uint8_t bits) { return base::from_half(std::uint16_t(bits << 8)); }
double from_e4m3(std::uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const double value = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(fraction | 8, exponent - 10);
  return (bits & 0x80) != 0 ? -value : value;
}

// Calls use(Number()) with the type of an integer dtype; false for any other.
template <class Use>
bool as_integer(const std::string& dtype, Use use) {
  if (dtype == "I64") return use(std::int64_t()), true;
  if (dtype == "I32") return use(std::int32_t()), true;
  if (dtype == "I16") return use(std::int16_t()), true;
  if (dtype == "I8") return use(std::int8_t()), true;
  if (dtype == "U64") return use(std::uint64_t()), true;
  if (dtype == "U32") return use(std::uint32_t()), true;
  if (dtype == "U16") return use(std::uint16_t()), true;
  if (dtype == "U8" || dtype == "BOOL") return use(std::uint8_t()), true;
  return false;
}

}  // namespace

bool has_means(const std::string& dtype) {
  return dtype == "F64" || dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "C64";
}

std::size_t numbers_in(const std::string& dtype, std::uint64_t bytes) {
  return std::size_t(bytes / element_bytes(dtype)) * (dtype == "C64" ? 2 : 1);
}

double number_at(const std::string& dtype, const std::byte* data, std::size_t i) {
  if (dtype == "F64") return loaded<double>(data, i);
  if (dtype == "F32" || dtype == "C64") return double(loaded<float>(data, i));
  if (dtype == "F16") return base::from_half(loaded<std::uint16_t>(data, i));
  if (dtype == "BF16") return base::from_bfloat16(loaded<std::uint16_t>(data, i));
  if (dtype == "F8_E5M2") return from_e5m2(loaded<std::uint8_t>(data, i));
  if (dtype == "F8_E4M3") return from_e4m3(loaded<std::uint8_t>(data, i));
  double value = 0;
  if (as_integer(dtype, [&](auto kind) { value = double(loaded<decltype(kind)>(data, i)); })) return value;
  throw Error("numbers of the dtype " + dtype);
}

void set_number(const std::string& dtype, std::byte* data, std::size_t i, double value) {
  if (dtype == "F64")
    store(data, i, value);
  else if (dtype == "F32" || dtype == "C64")
    store(data, i, float(value));
  else if (dtype == "F16")
    store(data, i, base::to_half(value));
  else if (dtype == "BF16")
    store(data, i, base::to_bfloat16(value));
  else
    throw Error("a mean of the dtype " + dtype);
}

double distance_at(const std::string& dtype, const std::byte* a, const std::byte* b, std::size_t i) {
  double distance = 0;
  const bool is_integer = as_integer(dtype, [&](auto kind) {
    using Number = decltype(kind);
    const Number x = loaded<Number>(a, i), y = loaded<Number>(b, i);
    // As unsigned numbers the difference of any two fits.
    distance = double(x > y ? std::uint64_t(x) - std::uint64_t(y) : std::uint64_t(y) - std::uint64_t(x));
  });
  if (is_integer) return distance;
  const double x = number_at(dtype, a, i), y = number_at(dtype, b, i);
  return x == y ? 0 : std::abs(x - y);  // equal infinities, too
}

}  // namespace lockstep::checkpoint
