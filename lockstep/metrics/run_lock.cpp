#include "lockstep/metrics/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::metrics {

RunLock::RunLock(const std::string& folder) {
  const std::string start = "output directory '" + folder + "': ";
  file_ = base::UniqueFd(::open((folder + "/" + kRunLockName).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file_) throw UsageError(start + "cannot be written (" + kRunLockName + ": " + std::strerror(errno) + ")");
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK)
      throw UsageError(start + "a running job writes there; wait for its end or choose another");
    throw UsageError(start + "cannot be locked (" + std::strerror(errno) + "); choose one on another file system");
  }
}

}  // namespace lockstep::metrics
