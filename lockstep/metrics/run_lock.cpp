#include "lockstep/metrics/run_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/text.h"

namespace lockstep::metrics {
namespace {

// A process that was killed holds its files until its memory is freed: long enough for the next start of the job.
constexpr std::chrono::milliseconds kSlowDeath{2'000};
constexpr std::chrono::milliseconds kBetweenLooks{20};
// A server keeps the lock of a machine that is gone for its lease, 90 s unless it is told another one.
constexpr std::chrono::seconds kLostMachine{120};
constexpr std::chrono::milliseconds kBetweenRequests{500};

// A line that no other machine has, nor this one after a reboot; the containers of a machine have the same.
std::string this_boot() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id + "\n";
}

bool is_of_this_boot(const base::UniqueFd& file) {
  char text[64];
  const ssize_t size = ::pread(file.get(), text, sizeof text, 0);
  return size > 1 && std::string_view(text, std::size_t(size)) == this_boot();
}

// On disk, for others read it over the network. Where the disk does not take it, nothing must stand there of who had
// the lock before.
void sign(const base::UniqueFd& file) {
  const std::string boot = this_boot();
  const bool is_there = ::pwrite(file.get(), boot.data(), boot.size(), 0) == ssize_t(boot.size());
  [[maybe_unused]] const int cut = ::ftruncate(file.get(), is_there ? off_t(boot.size()) : 0);
  [[maybe_unused]] const int synced = ::fsync(file.get());
}

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

RunLock::RunLock(const std::string& folder, Coming coming) {
  const std::string start = "output directory '" + folder + "': ";
  file_ = opened(folder + "/" + kRunLockName);
  const base::UniqueFd& file = *file_;
  if (!file)
    refuse_folder(folder, coming,
                  std::string("cannot be written (") + kRunLockName + ": " + std::strerror(errno) + ")");
  const auto begun = std::chrono::steady_clock::now();
  bool is_told = false;
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK)
      throw UsageError(start + "cannot be locked (" + std::strerror(errno) + "); choose one on another file system");
    const auto waited = std::chrono::steady_clock::now() - begun;
    if (waited < kSlowDeath) {
      std::this_thread::sleep_for(kBetweenLooks);
      continue;
    }
    if (coming == Coming::first || is_of_this_boot(file))
      throw UsageError(start + "a running job writes there; wait for its end or choose another");
    if (waited >= kLostMachine) throw Error(start + "a job on another machine writes there");
    if (!std::exchange(is_told, true))
      base::tell(STDERR_FILENO, "lockstep: " + base::shown(start) + "locked by a job on another machine; waiting for " +
                                    std::to_string(kLostMachine.count()) + " s at most, in case it is gone\n");
    std::this_thread::sleep_for(kBetweenRequests);
  }
  sign(file);
}

}  // namespace lockstep::metrics
