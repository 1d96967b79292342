#include "lockstep/base/pin.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "lockstep/base/byte_lock.h"

namespace lockstep::base {
namespace {

TEST(ByteLock, IsSeenByOtherOpenFilesOnlyAndEndsWithItsOwn) {
  const UniqueFd file(memfd_create("bytes", MFD_CLOEXEC));
  const auto open_again = [&] {
    return UniqueFd(::open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDWR | O_CLOEXEC));
  };
  {
    const UniqueFd first = open_again(), second = open_again();
    lock_byte(first.get(), 5);
    EXPECT_FALSE(is_byte_locked(first.get(), 5)) << "its own";
    EXPECT_TRUE(is_byte_locked(file.get(), 5));
    EXPECT_FALSE(is_byte_locked(file.get(), 4));
    EXPECT_FALSE(is_byte_locked(file.get(), 6));
    lock_byte(second.get(), 5);
    EXPECT_TRUE(is_byte_locked(first.get(), 5));
  }
  EXPECT_FALSE(is_byte_locked(file.get(), 5));
  EXPECT_THROW(lock_byte(-1, 0), Error);
  EXPECT_THROW(is_byte_locked(-1, 0), Error);
}

Segment with_regions() {
  Segment segment = Segment::create(1);
  for (int region = 0; region < kRegions; ++region) segment.grow(state_area(region), 4096);
  return segment;
}

TEST(Pin, IsOfOneBufferOfOneRegionAndNoHold) {
  const Segment segment = with_regions();
  const Segment other = Segment::open(segment.path(), 1);
  for (int region = 0; region < kRegions; ++region)
    for (int buffer = 0; buffer < kMaxStateBuffers; ++buffer) {
      const Mapping pin = pin_buffer(other, region, buffer);
      for (int r = 0; r < kRegions; ++r)
        for (int b = 0; b < kMaxStateBuffers; ++b) {
          EXPECT_EQ(is_pinned(segment, r, b), r == region && b == buffer);
          EXPECT_EQ(is_pinned(other, r, b), r == region && b == buffer) << "its own pin is one, too";
        }
      EXPECT_FALSE(segment.is_held()) << "who only reads keeps no generation from the memory";
    }
  EXPECT_FALSE(is_pinned(segment, 0, 0));
}

TEST(Pin, HoldsUntilTheLastOfManyIsGone) {
  const Segment segment = with_regions();
  Mapping first = pin_buffer(segment, 1, 2);
  {
    const Mapping second = pin_buffer(segment, 1, 2);
    first = Mapping();
    EXPECT_TRUE(is_pinned(segment, 1, 2));
  }
  EXPECT_FALSE(is_pinned(segment, 1, 2));
}

// A daemon closes all descriptors that it finds.
TEST(Pin, OutlivesDescriptorsAndEndsWithAProcessThatIsKilled) {
  const Segment segment = with_regions();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Mapping pin = pin_buffer(segment, 0, 1);
    dup2(ends[1], STDERR_FILENO);
    close_range(STDERR_FILENO + 1, ~0U, 0);
    [[maybe_unused]] const ssize_t said = write(STDERR_FILENO, "x", 1);
    for (;;) pause();
  }
  char ready = 0;
  ASSERT_EQ(read(ends[0], &ready, 1), 1);
  EXPECT_TRUE(is_pinned(segment, 0, 1));
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_FALSE(is_pinned(segment, 0, 1));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace lockstep::base
