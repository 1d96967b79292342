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

TEST(Pin, IsOfOneBufferOfOneRegionAndNoHold) {
  const Segment segment = Segment::create(1);
  const Segment other = Segment::open(segment.path(), 1);
  for (int region = 0; region < kRegions; ++region)
    for (int buffer = 0; buffer < kMaxStateBuffers; ++buffer) {
      UniqueFd pin = pin_buffer(other, region, buffer);
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
  const Segment segment = Segment::create(1);
  UniqueFd first = pin_buffer(segment, 1, 2);
  {
    const UniqueFd second = pin_buffer(segment, 1, 2);
    first = UniqueFd();
    EXPECT_TRUE(is_pinned(segment, 1, 2));
  }
  EXPECT_FALSE(is_pinned(segment, 1, 2));
}

TEST(Pin, EndsWithAProcessThatIsKilled) {
  const Segment segment = Segment::create(1);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const UniqueFd pin = pin_buffer(segment, 0, 1);
    [[maybe_unused]] const ssize_t said = write(ends[1], "x", 1);
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
