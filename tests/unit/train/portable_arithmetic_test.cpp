#include "lockstep/train/portable_arithmetic.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace lockstep::train {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

TEST(PortableArithmetic, SetsTheVariablesOnce) {
  for (const char* name : {"ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR"}) ::unsetenv(name);
  EXPECT_FALSE(set_arithmetic({.arithmetic = "native"}));
  EXPECT_EQ(variable("ATEN_CPU_CAPABILITY"), "");
  ::setenv("MKL_CBWR", "AUTO", 1);
  EXPECT_TRUE(set_arithmetic({.arithmetic = "portable"}));
  EXPECT_EQ(variable("ATEN_CPU_CAPABILITY"), "avx2");
  EXPECT_EQ(variable("ONEDNN_MAX_CPU_ISA"), "AVX2");
  EXPECT_EQ(variable("MKL_CBWR"), "COMPATIBLE") << "whatever it was";
  EXPECT_FALSE(set_arithmetic({.arithmetic = "portable"})) << "or a program would start again and again";
  for (const char* name : {"ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR"}) ::unsetenv(name);
}

}  // namespace
}  // namespace lockstep::train
