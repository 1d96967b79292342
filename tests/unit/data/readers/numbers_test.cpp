#include "lockstep/data/readers/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "lockstep/base/random.h"

namespace lockstep::data {
namespace {

template <class T>
T value_of(std::string_view text) {
  T value{};
  EXPECT_EQ(parse_number(text, value), NumberFault::none) << text;
  return value;
}

template <class T>
NumberFault fault_of(std::string_view text) {
  T value = 77;
  const NumberFault fault = parse_number(text, value);
  EXPECT_TRUE(fault == NumberFault::none || value == 77) << text;
  return fault;
}

TEST(ParseNumber, FloatsAsPythonWritesThem) {
  EXPECT_EQ(value_of<double>("1.5"), 1.5);
  EXPECT_EQ(value_of<double>(" \t+.5e1\r\n "), 5);
  EXPECT_EQ(value_of<double>("-7."), -7);
  EXPECT_TRUE(std::signbit(value_of<double>("-0")));
  EXPECT_EQ(value_of<double>("0.1"), 0.1);
  EXPECT_EQ(value_of<double>("5e-324"), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(value_of<double>("1e-400"), 0);
  EXPECT_TRUE(std::signbit(value_of<double>("-1e-400")));
  EXPECT_EQ(value_of<double>("2.4703282292062327208e-324"), 0);  // just below half of the smallest
  EXPECT_TRUE(std::isinf(value_of<double>("-Infinity")));
  EXPECT_TRUE(std::isinf(value_of<float>("inf")));
  EXPECT_TRUE(std::isnan(value_of<float>("NaN")));
}

// Rounded twice, as Python's float() and then torch do it: once this would give 0x1.000002p0.
TEST(ParseNumber, FloatsAreRoundedFromDoubles) {
  const char* text = "1.00000017881393432617187499";
  EXPECT_EQ(value_of<float>(text), float(std::strtod(text, nullptr)));
  EXPECT_NE(value_of<float>(text), std::strtof(text, nullptr));
  EXPECT_EQ(value_of<float>("1e-46"), 0);
}

TEST(ParseNumber, AgreesWithStrtodOnAllKindsOfDoubles) {
  base::RandomStream random(1, 0, 0);
  for (int i = 0; i < 20000; ++i) {
    std::uint64_t bits = random.next();
    bits = bits << 32 | random.next();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    char text[40];
    std::snprintf(text, sizeof text, "%.*e", int(random.below(18)), value);
    const double expected = std::strtod(text, nullptr);
    if (std::isinf(expected)) continue;
    ASSERT_EQ(value_of<double>(text), expected) << text;
  }
}

TEST(ParseNumber, SaysWhatIsWrong) {
  for (const char* text : {"", " ", "\t"}) {
    EXPECT_EQ(fault_of<double>(text), NumberFault::empty);
    EXPECT_EQ(fault_of<std::int64_t>(text), NumberFault::empty);
  }
  for (const char* text : {"abc", "1,5", "1 2", "+-1", "--1", "+", "1e", "0x10", "1_000", "nan(1)", "infinit"}) {
    EXPECT_EQ(fault_of<double>(text), NumberFault::no_number) << text;
    EXPECT_EQ(fault_of<float>(text), NumberFault::no_number) << text;
    EXPECT_EQ(fault_of<std::int64_t>(text), NumberFault::no_number) << text;
  }
  EXPECT_EQ(fault_of<double>("-1e309"), NumberFault::out_of_range);
  EXPECT_EQ(fault_of<float>("1e309"), NumberFault::out_of_range);
  EXPECT_EQ(fault_of<float>("3.5e38"), NumberFault::out_of_range);
  EXPECT_EQ(fault_of<double>("1e9999"), NumberFault::out_of_range);
}

// A long double ends at 1e-4951 and 1e4932.
TEST(ParseNumber, WhatIsTooSmallForAnyTypeIsZero) {
  const std::string zeros(6000, '0');
  for (const std::string& text :
       {std::string("1e-5000"), std::string("123456.75e-99999"), "0." + zeros + "1", "." + zeros + "7e3",
        "1" + zeros + "e-12000", std::string("9E-999999999999999999999999"), std::string("0e999999999999999999999999"),
        std::string("0.000e5000")}) {
    EXPECT_EQ(value_of<double>(text), 0) << text;
    EXPECT_FALSE(std::signbit(value_of<double>(text))) << text;
    EXPECT_EQ(value_of<float>(text), 0) << text;
    EXPECT_TRUE(std::signbit(value_of<double>("-" + text))) << text;
  }
  for (const std::string& text : {std::string("1e5000"), "1" + zeros, "0." + zeros + "1e12000", "1" + zeros + "e-100",
                                  std::string("1e+999999999999999999999999"), std::string("-9e5000")}) {
    EXPECT_EQ(fault_of<double>(text), NumberFault::out_of_range) << text;
    EXPECT_EQ(fault_of<float>(text), NumberFault::out_of_range) << text;
  }
}

TEST(ParseNumber, WholeNumbers) {
  EXPECT_EQ(value_of<std::int64_t>(" -12 "), -12);
  EXPECT_EQ(value_of<std::int64_t>("+9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(fault_of<std::int64_t>("9223372036854775808"), NumberFault::out_of_range);
  EXPECT_EQ(fault_of<std::int64_t>("3.0"), NumberFault::no_number);
  EXPECT_EQ(fault_of<std::int64_t>("1e3"), NumberFault::no_number);
}

}  // namespace
}  // namespace lockstep::data
