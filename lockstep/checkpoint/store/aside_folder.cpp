#include "lockstep/checkpoint/store/aside_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAside = ".part-";
constexpr std::string_view kOld = ".old-";  // and the name that it had

base::UniqueFd open_folder(const std::string& path) {
  return base::UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
}

// Whether the open folder is the one of that name still: sweep() of another process may have come before the lock.
bool is_there(const base::UniqueFd& open, const std::string& path) {
  struct stat one {
  }, other{};
  return ::fstat(open.get(), &one) == 0 && ::stat(path.c_str(), &other) == 0 && one.st_ino == other.st_ino &&
         one.st_dev == other.st_dev;
}

void remove_all(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

std::vector<std::string> beginning_with(std::string_view prefix, const std::string& folder) {
  std::error_code error;
  std::vector<std::string> found;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().starts_with(prefix)) found.push_back(entry->path().string());
  return found;
}

}  // namespace

std::string aside_path(const std::string& folder) {
  static std::atomic<unsigned> count{0};
  return folder + "/" + std::string(kAside) + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

void sync_folder(const std::string& folder) {
  const base::UniqueFd open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!open || ::fsync(open.get()) != 0) throw_errno("syncing the folder '" + folder + "'");
}

AsideFolder::AsideFolder(std::string folder) : folder_(std::move(folder)) {
  for (;;) {
    path_ = aside_path(folder_);
    if (::mkdir(path_.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;  // left by a process that had our number
      throw_errno("making a folder in '" + folder_ + "'");
    }
    lock_ = open_folder(path_);
    const bool locked = lock_ && ::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0;
    if (locked && is_there(lock_, path_)) return;
    // Somebody's sweep() came between, and takes it away. Whatever else refuses, as a file system without locks, would
    // refuse the next one, too.
    if (locked || errno == EWOULDBLOCK || errno == EINTR || errno == ENOENT) continue;
    const int error = errno;
    remove_all(path_);
    errno = error;
    throw_errno("locking a folder in '" + folder_ + "'");
  }
}

AsideFolder::~AsideFolder() {
  if (!path_.empty()) remove_all(path_);
}

void AsideFolder::appear(const std::string& name) {
  sync_folder(path_);
  const std::string target = folder_ + "/" + name;
  const auto failed = [&] { throw_errno("renaming a folder to '" + target + "'"); };
  if (::rename(path_.c_str(), target.c_str()) == 0) {
    path_.clear();
  } else if (errno != EEXIST && errno != ENOTEMPTY) {
    failed();
  } else if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) failed();
    // A file system that cannot exchange. A kill between the two renames leaves the old one where it is found again;
    // the lock keeps others from taking it for such a one.
    const std::string old = folder_ + "/" + std::string(kOld) + name;
    const base::UniqueFd held = open_folder(target);
    if (held) (void)::flock(held.get(), LOCK_EX | LOCK_NB);
    if (::rename(target.c_str(), old.c_str()) != 0) failed();
    if (::rename(path_.c_str(), target.c_str()) != 0) {
      const int error = errno;
      (void)::rename(old.c_str(), target.c_str());
      errno = error;
      failed();
    }
    path_ = aside_path(folder_);  // half removed, it is to be none that put_back() takes
    if (::rename(old.c_str(), path_.c_str()) != 0) path_ = old;
  }
  sync_folder(folder_);
}

void remove_folder(const std::string& folder, const std::string& name) {
  const std::string aside = aside_path(folder);
  if (::rename((folder + "/" + name).c_str(), aside.c_str()) != 0)
    throw_errno("removing the folder '" + folder + "/" + name + "'");
  remove_all(aside);
}

void put_back(const std::string& folder) {
  for (const std::string& path : beginning_with(kOld, folder)) {
    const base::UniqueFd open = open_folder(path);
    if (!open || ::flock(open.get(), LOCK_EX | LOCK_NB) != 0 || !is_there(open, path)) continue;
    const std::string name = folder + "/" + fs::path(path).filename().string().substr(kOld.size());
    std::error_code error;
    if (!fs::exists(name, error) && !error) {
      (void)::rename(path.c_str(), name.c_str());
    } else if (!error) {
      const std::string aside = aside_path(folder);
      if (::rename(path.c_str(), aside.c_str()) == 0) remove_all(aside);
    }
  }
}

void sweep(const std::string& folder) {
  put_back(folder);
  for (const std::string& path : beginning_with(kAside, folder)) {
    const base::UniqueFd open = open_folder(path);
    if (!open || ::flock(open.get(), LOCK_EX | LOCK_NB) == 0) remove_all(path);  // a link, or nobody's
  }
}

}  // namespace lockstep::checkpoint
