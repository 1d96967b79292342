#include "lockstep/base/byte_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::base {
namespace {

struct flock lock_of(short type, std::int64_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

}  // namespace

void lock_byte(int fd, std::int64_t byte) {
  const struct flock lock = lock_of(F_RDLCK, byte);
  if (fcntl(fd, F_OFD_SETLK, &lock) != 0) throw_errno("segment: cannot lock");
  // What the caller looks at next it must not have read before others can see the lock.
  __builtin_ia32_mfence();
}

bool is_byte_locked(int fd, std::int64_t byte) {
  struct flock lock = lock_of(F_WRLCK, byte);
  if (fcntl(fd, F_OFD_GETLK, &lock) != 0) throw_errno("segment: fcntl(F_OFD_GETLK)");
  return lock.l_type != F_UNLCK;
}

}  // namespace lockstep::base
