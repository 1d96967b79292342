#include "lockstep/base/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>

namespace lockstep::base {
namespace {

TEST(Segment, OthersOpenItByPathAndSeeTheSameBytes) {
  Segment made = Segment::create(2);
  const std::size_t offset = made.grow(1000);
  Segment opened = Segment::open(made.path(), 2);
  Mapping write = made.map(offset, 1000, Access::read_write);
  Mapping read = opened.map(offset, 1000, Access::read_only);
  std::strcpy(reinterpret_cast<char*>(write.data()), "hello");
  EXPECT_STREQ(reinterpret_cast<const char*>(read.data()), "hello");
  EXPECT_NE(write.data(), read.data());
}

TEST(Segment, GrowsInOrderOnHugePageEdges) {
  Segment segment = Segment::create(1);
  const std::size_t first = segment.grow(1);
  const std::size_t second = segment.grow(std::size_t(3) << 20);
  EXPECT_EQ(first % (std::size_t(2) << 20), 0u);
  EXPECT_EQ(second, first + (std::size_t(2) << 20));
  EXPECT_EQ(segment.control().bytes.load(), second + (std::size_t(4) << 20));
}

TEST(Segment, RefusesAnotherWorld) {
  Segment made = Segment::create(2);
  EXPECT_THROW(Segment::open(made.path(), 3), Error);
}

TEST(Segment, RefusesAFileThatIsNone) {
  EXPECT_THROW(Segment::open("/proc/self/exe", 1), Error);
  EXPECT_THROW(Segment::open("/nowhere", 1), Error);
}

TEST(Segment, TooLittleMemoryIsAnErrorNotASignal) {
  Segment segment = Segment::create(1);
  EXPECT_THROW(segment.grow(available_memory() + (std::size_t(1) << 30)), UsageError);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  try {
    segment.grow(8 << 20);
    ADD_FAILURE() << "grew over the limit";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("shared memory too small: the segment needs 8 MiB"), std::string::npos);
  }
  setrlimit(RLIMIT_FSIZE, &before);
}

// Whether this kernel gives shared memory huge pages on demand: what the segment does, by hand.
bool kernel_collapses(std::size_t bytes) {
  constexpr std::size_t edge = std::size_t(2) << 20;
  const UniqueFd fd(memfd_create("probe", MFD_CLOEXEC));
  if (fallocate(fd.get(), 0, 0, off_t(bytes)) != 0) return false;
  void* reserved = mmap(nullptr, bytes + edge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const Mapping owner(reserved, bytes + edge);
  auto* aligned = reinterpret_cast<void*>((reinterpret_cast<std::size_t>(reserved) + edge - 1) / edge * edge);
  if (mmap(aligned, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(), 0) != aligned) return false;
  madvise(aligned, bytes, MADV_HUGEPAGE);
  return madvise(aligned, bytes, 25 /* MADV_COLLAPSE */) == 0;
}

TEST(Segment, HugePagesBackItWhereTheKernelHasThem) {
  Segment segment = Segment::create(1);
  const std::size_t bytes = std::size_t(8) << 20;
  const auto pages = [&] {
    const Mapping mapping = segment.map(segment.grow(bytes), bytes, Access::read_write);
    std::memset(mapping.data(), 1, bytes);
    return page_size(mapping.data());
  };
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  EXPECT_EQ(pages(), "4 KiB");
  prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
  const std::string used = pages();
  if (used != "2 MiB" && !kernel_collapses(bytes)) GTEST_SKIP() << "this kernel has no shared huge pages on demand";
  EXPECT_EQ(used, "2 MiB");
}

TEST(Segment, WritingThroughAReadOnlyMappingFaults) {
  Segment segment = Segment::create(1);
  const std::size_t offset = segment.grow(4096);
  Mapping read = segment.map(offset, 4096, Access::read_only);
  EXPECT_DEATH(std::memset(read.data(), 1, 1), "");
}

TEST(Memory, SomeIsAvailable) { EXPECT_GT(available_memory(), std::size_t(1) << 20); }

}  // namespace
}  // namespace lockstep::base
