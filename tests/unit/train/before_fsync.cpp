#include "tests/unit/train/before_fsync.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

namespace lockstep::train {

std::atomic<void (*)()> before_fsync{nullptr};

namespace {
const std::thread::id first = std::this_thread::get_id();
}  // namespace

}  // namespace lockstep::train

extern "C" int fsync(int fd) {
  void (*const before)() = lockstep::train::before_fsync;
  if (before != nullptr && std::this_thread::get_id() != lockstep::train::first) before();
  return int(syscall(SYS_fsync, fd));
}
