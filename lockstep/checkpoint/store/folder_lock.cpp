#include "lockstep/checkpoint/store/folder_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/machine_lock.h"
#include "lockstep/base/text.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::checkpoint {
namespace {

// By whatever name it is found; of a file that is held no other one has the same.
using Inode = std::pair<dev_t, ino_t>;

std::optional<Inode> inode_at(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return {};
  return Inode(facts.st_dev, facts.st_ino);
}

std::optional<Inode> inode_of(const base::UniqueFd& file) {
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return {};
  return Inode(facts.st_dev, facts.st_ino);
}

// Whether the system gives the lock at all.
bool is_locked(const base::UniqueFd& file, const std::string& folder,
               std::optional<std::chrono::milliseconds> patience) {
  const std::string start = "checkpoints in '" + base::shown(folder) + "': ";
  switch (base::lock_of_machine(file, patience, start)) {
    case base::LockEnd::held:
      throw UsageError(start +
                       "another program that is running saves there; wait for its end or choose another folder");
    case base::LockEnd::held_elsewhere:
      throw Error(start + "a program on another machine saves there");
    case base::LockEnd::held_unsigned:
      throw Error(start + "a program saves there that does not say on which machine it runs");
    case base::LockEnd::stopped:
      throw Error(start + "asked to end while another program had it locked");
    case base::LockEnd::refused:
      return false;
    case base::LockEnd::locked:
      break;
  }
  return true;
}

// Opened for writing for a moment, by no name: another file may have it by now. A file that is another user's stays as
// it is, of whatever machine.
void sign(const base::UniqueFd& locked) {
  const base::UniqueFd file(::open(("/proc/self/fd/" + std::to_string(locked.get())).c_str(), O_WRONLY | O_CLOEXEC));
  if (file) base::sign_lock(file);
}

// Stays for whoever saves while the process ends.
struct Held {
  std::mutex mutex;  // for moments, and no call of a disk: a fork waits for it
  std::uint64_t forks = 0;
  std::map<Inode, base::UniqueFd> files;
  base::UniqueFd tried;  // of the thread whose turn it is
  // Who waits for another program has it for seconds, and no fork waits for that: a child gets another one.
  std::mutex* turn = new std::mutex;
};

Held& held() {
  static Held& all = *new Held;
  return all;
}

void lock_held() {
  held().mutex.lock();
  ++held().forks;
}
void unlock_held() { held().mutex.unlock(); }

// The lock is of all that have the open file: a forked child that outlives this process would keep the folder from the
// next start of the job. It goes on to know which folders are its, for it may be a rank of this program.
void close_held_in_child() {
  for (auto& one : held().files) one.second = base::UniqueFd();
  held().tried = base::UniqueFd();
  held().turn = new std::mutex;  // the old one may be locked for ever, by a thread that is not here
  unlock_held();
}

std::uint64_t forks_so_far() {
  const std::lock_guard<std::mutex> lock(held().mutex);
  return held().forks;
}

bool is_held(const std::string& path) {
  const std::optional<Inode> there = inode_at(path);
  const std::lock_guard<std::mutex> lock(held().mutex);
  return there && held().files.contains(*there);
}

// The file of the thread whose turn it is: known before it has a lock, so that no child keeps it.
class Trial {
 public:
  // Not for writing, or its disk could not be made read-only as long as the program runs. NFS gives nobody such a
  // lock: its own may outlive a machine that is gone, whose job goes on elsewhere. A server of files that stands still
  // lets nobody open it: no fork waits for that. One that came meanwhile may have left it open in its child.
  explicit Trial(const std::string& path) {
    for (bool is_known = false; !is_known;) {
      const std::uint64_t forks = forks_so_far();
      base::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0644));
      const std::lock_guard<std::mutex> lock(held().mutex);
      is_known = held().forks == forks;
      if (is_known) held().tried = std::move(file);
    }
  }
  Trial(const Trial&) = delete;
  ~Trial() {
    const std::lock_guard<std::mutex> lock(held().mutex);
    held().tried = base::UniqueFd();
  }

  const base::UniqueFd& file() const { return held().tried; }
  void keep(const Inode& inode) {
    const std::lock_guard<std::mutex> lock(held().mutex);
    held().files.emplace(inode, std::move(held().tried));
  }
};

}  // namespace

void hold_folder(const std::string& folder, std::optional<std::chrono::milliseconds> patience) {
  [[maybe_unused]] static const int forks = ::pthread_atfork(lock_held, unlock_held, close_held_in_child);
  const std::string path = folder + "/" + kFolderLockName;
  if (is_held(path)) return;  // without a turn, which who waits for another folder may have for minutes
  const std::lock_guard<std::mutex> one_at_a_time(*held().turn);
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  while (!is_held(path)) {
    Trial trial(path);
    if (!trial.file() || !is_locked(trial.file(), folder, patience)) return;
    const std::optional<Inode> locked = inode_of(trial.file());
    if (!locked) return;
    if (inode_at(path) == locked) {  // else somebody has taken the folder away and made another
      sign(trial.file());
      trial.keep(*locked);
      return;
    }
  }
}

}  // namespace lockstep::checkpoint
