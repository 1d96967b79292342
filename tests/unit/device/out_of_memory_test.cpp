#include "lockstep/device/out_of_memory.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep::device {
namespace {

// As libtorch 2.11 writes it.
constexpr const char* kText =
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.11 GiB of which 5.06 GiB is "
    "free. "
    "Including non-PyTorch memory, this process has 74.04 GiB memory in use. Of the allocated memory 70.10 GiB is "
    "allocated by PyTorch, and 1.20 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
    "large "
    "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";

TEST(OutOfMemory, OneLineOfTheParagraph) {
  EXPECT_EQ(
      out_of_memory_line(kText, 3),
      "rank 3: out of memory on cuda:1: asked for 20.00 GiB, free are 5.06 GiB of 79.11 GiB; libtorch has handed out "
      "70.10 GiB and keeps 1.20 GiB more, in blocks too small for it: a smaller --batch-size, more "
      "--grad-accum-steps, or --amp");
}

TEST(OutOfMemory, PrivatePoolsOfGraphsAreNoFreeBlocks) {
  std::string text = kText;
  text.insert(text.find("and 1.20 GiB"), "with 2.00 GiB allocated in private pools (e.g., CUDA Graphs), ");
  EXPECT_NE(out_of_memory_line(text, 0).find("70.10 GiB and keeps 1.20 GiB more"), std::string::npos)
      << out_of_memory_line(text, 0);
}

TEST(OutOfMemory, OtherTextsKeepTheirFirstLine) {
  EXPECT_EQ(out_of_memory_line("CUDA out of memory. Tried to allocate more than 1EB memory.\nframe #0", 2),
            "rank 2: out of memory: CUDA out of memory. Tried to allocate more than 1EB memory.");
}

TEST(OutOfMemory, OfTheExceptionWithoutItsFrames) {
  try {
    TORCH_CHECK_WITH(OutOfMemoryError, false, kText);
    FAIL();
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_EQ(out_of_memory_line(error.what_without_backtrace(), 3), out_of_memory_line(kText, 3));
  }
}

}  // namespace
}  // namespace lockstep::device
