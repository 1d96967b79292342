#include "lockstep/metrics/run_lock.h"

#include <fcntl.h>
#include <pthread.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/machine_lock.h"

namespace lockstep::metrics {
namespace {

// The files that have a lock. They stay for whoever has one while the process ends.
struct Locks {
  std::mutex mutex;  // for moments: a fork waits for it
  std::set<base::UniqueFd*> files;
};

Locks& locks() {
  static Locks& all = *new Locks;
  return all;
}

void stop_locks() { locks().mutex.lock(); }
void release_locks() { locks().mutex.unlock(); }

// The lock is of all that have the open file: a forked child that outlives this process (a loader, a helper) would keep
// the folder from the next start of the job.
void close_in_child() {
  for (base::UniqueFd* const file : locks().files) *file = base::UniqueFd();
  release_locks();
}

void let_go(base::UniqueFd* file) {
  {
    const std::lock_guard<std::mutex> lock(locks().mutex);
    locks().files.erase(file);
  }
  delete file;
}

// Opens the file; in children it is closed.
std::shared_ptr<base::UniqueFd> opened(const std::string& path) {
  [[maybe_unused]] static const int forks = ::pthread_atfork(stop_locks, release_locks, close_in_child);
  const std::shared_ptr<base::UniqueFd> file(new base::UniqueFd, let_go);
  const std::lock_guard<std::mutex> lock(locks().mutex);  // no child has it before it is known
  locks().files.insert(file.get());
  *file = base::UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  return file;
}

}  // namespace

void refuse_folder(const std::string& folder, Coming coming, const std::string& why) {
  const std::string message = "output directory '" + folder + "': " + why;
  if (coming == Coming::first) throw UsageError(message);
  throw Error(message);
}

RunLock::RunLock(const std::string& folder, Coming coming, std::chrono::milliseconds patience) {
  const std::string start = "output directory '" + folder + "': ";
  file_ = opened(folder + "/" + kRunLockName);
  const base::UniqueFd& file = *file_;
  if (!file)
    refuse_folder(folder, coming,
                  std::string("cannot be written (") + kRunLockName + ": " + std::strerror(errno) + ")");
  std::optional<std::chrono::milliseconds> for_lost_machine;
  if (coming == Coming::again) for_lost_machine = patience;
  switch (base::lock_of_machine(file, for_lost_machine, start)) {
    case base::LockEnd::refused:
      throw UsageError(start + "cannot be locked (" + std::strerror(errno) + "); choose one on another file system");
    case base::LockEnd::held:
      throw UsageError(start + "a running job writes there; wait for its end or choose another");
    case base::LockEnd::held_elsewhere:
      throw Error(start + "a job on another machine writes there");
    case base::LockEnd::held_unsigned:
      throw Error(start + "a job writes there that does not say on which machine it runs");
    case base::LockEnd::stopped:
      throw Error(start + "asked to end while another job had it locked");
    case base::LockEnd::locked:
      base::sign_lock(file);
  }
}

}  // namespace lockstep::metrics
