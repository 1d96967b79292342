#include "lockstep/base/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace lockstep::base {
namespace {

TEST(Segment, OthersOpenItByPathAndSeeTheSameBytes) {
  Segment made = Segment::create(2);
  const std::size_t offset = made.grow(Area::state, 1000);
  Segment opened = Segment::open(made.path(), 2);
  Mapping write = made.map(offset, 1000, Access::read_write);
  Mapping read = opened.map(offset, 1000, Access::read_only);
  std::strcpy(reinterpret_cast<char*>(write.data()), "hello");
  EXPECT_STREQ(reinterpret_cast<const char*>(read.data()), "hello");
  EXPECT_NE(write.data(), read.data());
}

constexpr std::size_t kMiB = std::size_t(1) << 20;

std::size_t file_size(const Segment& segment) {
  struct stat status {};
  fstat(segment.fd(), &status);
  return std::size_t(status.st_size);
}

std::size_t memory(const Segment& segment) {
  struct stat status {};
  fstat(segment.fd(), &status);
  return std::size_t(status.st_blocks) * 512;
}

TEST(Segment, PartsGrowOnHugePageEdges) {
  Segment segment = Segment::create(1);
  EXPECT_EQ(segment.extent(Area::staging).bytes, 0u);
  const std::size_t first = segment.grow(Area::staging, 1);
  const std::size_t second = segment.grow(Area::state, 3 * kMiB);
  EXPECT_EQ(first % (2 * kMiB), 0u);
  EXPECT_GE(first, kControlBytes);
  EXPECT_EQ(second, first + 2 * kMiB);
  EXPECT_EQ(segment.extent(Area::state), (Extent{second, 4 * kMiB}));
  EXPECT_EQ(file_size(segment), second + 4 * kMiB);
}

TEST(Segment, APartThatIsLongEnoughIsClearedAndStays) {
  Segment segment = Segment::create(1);
  const std::size_t offset = segment.grow(Area::state, 4 * kMiB);
  std::memset(segment.map(offset, 4 * kMiB, Access::read_write).data(), 7, 4 * kMiB);
  const std::size_t before = memory(segment);
  EXPECT_EQ(segment.grow(Area::state, 3 * kMiB), offset);
  EXPECT_EQ(memory(segment), before);
  const Mapping again = segment.map(offset, 4 * kMiB, Access::read_only);
  EXPECT_TRUE(std::all_of(again.data(), again.data() + 4 * kMiB, [](std::byte b) { return b == std::byte(0); }));
}

TEST(Segment, APartThatIsTooShortGivesItsMemoryBack) {
  Segment segment = Segment::create(1);
  const std::size_t staging = segment.grow(Area::staging, 2 * kMiB);
  const std::size_t state = segment.grow(Area::state, 2 * kMiB);
  std::memset(segment.map(staging, 2 * kMiB, Access::read_write).data(), 7, 2 * kMiB);
  const std::size_t before = memory(segment);
  EXPECT_EQ(segment.grow(Area::staging, 4 * kMiB), state + 2 * kMiB) << "over the state";
  EXPECT_EQ(memory(segment), before + 2 * kMiB);
  // The last part goes on where it is.
  EXPECT_EQ(segment.grow(Area::staging, 6 * kMiB), state + 2 * kMiB);
  EXPECT_EQ(memory(segment), before + 4 * kMiB);
  EXPECT_EQ(segment.extent(Area::state), (Extent{state, 2 * kMiB}));
}

TEST(Segment, APartWithRoomIsExtendedWhereItLies) {
  Segment segment = Segment::create(1);
  const std::size_t offset = segment.grow(Area::state, 2 * kMiB, 7 * kMiB);
  const std::size_t before = memory(segment);
  EXPECT_EQ(segment.grow(Area::text, 1), offset + 8 * kMiB) << "in its room";
  EXPECT_EQ(memory(segment), before + 2 * kMiB) << "room is no memory";
  std::memset(segment.map(offset, 2 * kMiB, Access::read_write).data(), 7, 2 * kMiB);
  segment.extend(Area::state, 5 * kMiB);
  EXPECT_EQ(segment.extent(Area::state), (Extent{offset, 6 * kMiB}));
  EXPECT_EQ(memory(segment), before + 6 * kMiB);
  const Mapping all = segment.map(offset, 6 * kMiB, Access::read_only);
  const std::byte* const used = all.data();
  const std::byte* const fresh = used + 2 * kMiB;
  EXPECT_TRUE(std::all_of(used, fresh, [](std::byte b) { return b == std::byte(7); }));
  EXPECT_TRUE(std::all_of(fresh, fresh + 4 * kMiB, [](std::byte b) { return b == std::byte(0); }));
  segment.extend(Area::state, 3 * kMiB);  // which it has
  EXPECT_EQ(segment.extent(Area::state), (Extent{offset, 6 * kMiB}));
  try {
    segment.extend(Area::state, 9 * kMiB);
    ADD_FAILURE() << "into the next one";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("made with room for 8 MiB of state, and needs 10 MiB"), std::string::npos);
  }
}

// The room of a part that nobody has used yet is that of the next who makes it.
TEST(Segment, APartIsMadeAgainWithMoreRoom) {
  Segment segment = Segment::create(1);
  const std::size_t first = segment.grow(Area::state, 2 * kMiB, 4 * kMiB);
  EXPECT_EQ(segment.grow(Area::state, 2 * kMiB, 6 * kMiB), first) << "it is the last one";
  EXPECT_EQ(segment.grow(Area::text, 1), first + 6 * kMiB);
  EXPECT_EQ(segment.grow(Area::state, 2 * kMiB, 5 * kMiB), first);
  const std::size_t second = segment.grow(Area::state, 2 * kMiB, 8 * kMiB);
  EXPECT_EQ(second, first + 8 * kMiB) << "behind the text";
  EXPECT_EQ(segment.grow(Area::staging, 1), second + 8 * kMiB);
  segment.extend(Area::state, 8 * kMiB);
  EXPECT_EQ(segment.extent(Area::state), (Extent{second, 8 * kMiB}));
}

// As one leaves it who dies between taking memory and saying so.
TEST(Segment, MemoryThatNobodyHasSaidIsTakenOver) {
  Segment segment = Segment::create(1);
  const std::size_t offset = segment.grow(Area::state, 2 * kMiB);
  std::memset(segment.map(offset, 2 * kMiB, Access::read_write).data(), 7, 2 * kMiB);
  const std::size_t before = memory(segment);
  segment.control().areas[std::size_t(Area::state)].store(0);
  EXPECT_EQ(segment.grow(Area::state, 2 * kMiB), offset);
  EXPECT_EQ(memory(segment), before);
  EXPECT_EQ(segment.map(offset, 2 * kMiB, Access::read_only).data()[kMiB], std::byte(0));
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
  EXPECT_THROW(segment.grow(Area::state, available_memory() + (std::size_t(1) << 30)), UsageError);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  try {
    segment.grow(Area::state, 8 << 20);
    ADD_FAILURE() << "grew over the limit";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("shared memory too small: the segment needs 8 MiB"), std::string::npos);
  }
  setrlimit(RLIMIT_FSIZE, &before);
}

TEST(Segment, TooLittleMemoryLeavesAPartAsItWas) {
  Segment segment = Segment::create(1);
  const std::size_t more = available_memory() + (std::size_t(8) << 30);
  const std::size_t offset = segment.grow(Area::state, 1, more);
  EXPECT_THROW(segment.extend(Area::state, more), UsageError);
  EXPECT_EQ(segment.extent(Area::state), (Extent{offset, 2 * kMiB}));
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
  const auto pages = [&](Area area) {
    const Mapping mapping = segment.map(segment.grow(area, bytes), bytes, Access::read_write);
    std::memset(mapping.data(), 1, bytes);
    return page_size(mapping.data());
  };
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  EXPECT_EQ(pages(Area::staging), "4 KiB");
  prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
  const std::string used = pages(Area::state);
  if (used != "2 MiB" && !kernel_collapses(bytes)) GTEST_SKIP() << "this kernel has no shared huge pages on demand";
  EXPECT_EQ(used, "2 MiB");
}

TEST(Segment, WritingThroughAReadOnlyMappingFaults) {
  Segment segment = Segment::create(1);
  const std::size_t offset = segment.grow(Area::state, 4096);
  Mapping read = segment.map(offset, 4096, Access::read_only);
  EXPECT_DEATH(std::memset(read.data(), 1, 1), "");
}

TEST(Memory, SomeIsAvailable) { EXPECT_GT(available_memory(), std::size_t(1) << 20); }

}  // namespace
}  // namespace lockstep::base
