#include "lockstep/metrics/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::metrics {
namespace {

// A process that was killed holds its files until its memory is freed: long enough for the next start of the job.
constexpr std::chrono::milliseconds kSlowDeath{2'000};
constexpr std::chrono::milliseconds kBetweenLooks{20};

}  // namespace

void refuse_folder(const std::string& folder, Coming coming, const std::string& why) {
  const std::string message = "output directory '" + folder + "': " + why;
  if (coming == Coming::first) throw UsageError(message);
  throw Error(message);
}

RunLock::RunLock(const std::string& folder, Coming coming) {
  const std::string start = "output directory '" + folder + "': ";
  file_ = base::UniqueFd(::open((folder + "/" + kRunLockName).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file_)
    refuse_folder(folder, coming,
                  std::string("cannot be written (") + kRunLockName + ": " + std::strerror(errno) + ")");
  const auto deadline = std::chrono::steady_clock::now() + kSlowDeath;
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kBetweenLooks);
      continue;
    }
    if (errno == EWOULDBLOCK)
      throw UsageError(start + "a running job writes there; wait for its end or choose another");
    throw UsageError(start + "cannot be locked (" + std::strerror(errno) + "); choose one on another file system");
  }
}

}  // namespace lockstep::metrics
