#include "lockstep/train/error_text.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

TEST(ErrorText, OneLineOfAnyError) { EXPECT_EQ(error_text(Error("no file 'a'")), "no file 'a'"); }

TEST(ErrorText, MemoryOfAGpuThatIsUsedUpTellsWhatWasAskedFor) {
  try {
    TORCH_CHECK_WITH(
        OutOfMemoryError, false,
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 8.00 GiB of which 1.00 "
        "GiB is free. Process 7 has 7.00 GiB memory in use.");
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_EQ(
        error_text(error),
        "out of memory on cuda:1: asked for 2.00 GiB, free are 1.00 GiB of 8.00 GiB: a smaller --batch-size, more "
        "--grad-accum-steps, or --amp");
  }
}

}  // namespace
}  // namespace lockstep::train
