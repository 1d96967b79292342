#include "lockstep/base/message.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "lockstep/base/error.h"

namespace lockstep::base {
namespace {

// As libtorch 2.11 writes it.
const std::string kOfTorch =
    "mat1 and mat2 must have the same dtype, but got Float and BFloat16\n"
    "Exception raised from addmm_impl_cpu_ at /pytorch/aten/src/ATen/native/LinearAlgebra.cpp:1393 (most recent call "
    "first):\nframe #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x9d (0x7f in libc10.so)\n";

class CallStack : public ::testing::Test {
 protected:
  CallStack() { unsetenv("TORCH_SHOW_CPP_STACKTRACES"); }
  ~CallStack() override { unsetenv("TORCH_SHOW_CPP_STACKTRACES"); }
};

TEST_F(CallStack, IsLeftOutUnlessAskedFor) {
  const Error error(kOfTorch);
  EXPECT_EQ(message_of(error), "mat1 and mat2 must have the same dtype, but got Float and BFloat16");
  setenv("TORCH_SHOW_CPP_STACKTRACES", "0", 1);
  EXPECT_EQ(message_of(error).find('\n'), std::string::npos);
  setenv("TORCH_SHOW_CPP_STACKTRACES", "1", 1);
  EXPECT_EQ(message_of(error), kOfTorch);
  EXPECT_EQ(line_of(kOfTorch), "mat1 and mat2 must have the same dtype, but got Float and BFloat16");
}

TEST_F(CallStack, OtherMessagesStayWhole) {
  EXPECT_EQ(message_of(Error("two\nlines")), "two\nlines");
  EXPECT_EQ(line_of("two\nlines"), "two\\nlines");
  EXPECT_EQ(line_of("first\nsecond\nException raised from f at x.cpp:1"), "first");
  EXPECT_EQ(line_of(""), "");
}

}  // namespace
}  // namespace lockstep::base
