#include "lockstep/data/fetch/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

}  // namespace

PartFile::PartFile(std::string target, std::chrono::milliseconds patience)
    : target_(std::move(target)), path_(target_ + ".part") {
  using Clock = std::chrono::steady_clock;
  Clock::time_point deadline = Clock::now() + patience;
  for (std::uint64_t before = 0; !try_to_open(size_);) {
    if (size_ != before) deadline = Clock::now() + patience;  // the other one is at work
    before = size_;
    if (Clock::now() > deadline) {
      throw Error("'" + base::shown(path_) + "' is held by another process, which has not added to it for " +
                  std::to_string(patience.count() / 1000) + " s");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// True with the file open and locked. False, with the size seen, when another process has it or just renamed or
// removed it: then the name is looked up again.
bool PartFile::try_to_open(std::uint64_t& seen) {
  fd_ = base::UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd_) throw UsageError("cannot write '" + base::shown(path_) + "': " + std::strerror(errno));
  const bool locked = ::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0;
  if (!locked && errno != EWOULDBLOCK && errno != EINTR) throw_errno("locking '" + base::shown(path_) + "'");
  struct stat opened {
  }, named{};
  if (::fstat(fd_.get(), &opened) != 0) throw_errno("reading '" + base::shown(path_) + "'");
  if (!S_ISREG(opened.st_mode)) throw UsageError("cannot write '" + base::shown(path_) + "': not a regular file");
  seen = std::uint64_t(opened.st_size);
  return locked && ::stat(path_.c_str(), &named) == 0 && same_file(opened, named);
}

PartFile::~PartFile() {
  if (fd_ && size_ == 0) ::unlink(path_.c_str());
}

void PartFile::append(const void* bytes, std::size_t count) {
  const char* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(fd_.get(), next, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_errno("writing '" + base::shown(path_) + "'");
    next += written;
    count -= std::size_t(written);
    size_ += std::uint64_t(written);
  }
}

void PartFile::restart() {
  if (::ftruncate(fd_.get(), 0) != 0) throw_errno("emptying '" + base::shown(path_) + "'");
  size_ = 0;
}

void PartFile::become_target() {
  if (::fsync(fd_.get()) != 0) throw_errno("syncing '" + base::shown(path_) + "'");
  if (::rename(path_.c_str(), target_.c_str()) != 0) throw_errno("renaming to '" + base::shown(target_) + "'");
  fd_ = {};
  sync_folder(std::filesystem::path(target_).parent_path());
}

void PartFile::remove() {
  if (::unlink(path_.c_str()) != 0) throw_errno("removing '" + base::shown(path_) + "'");
  fd_ = {};
}

void sync_folder(const std::string& folder) {
  const base::UniqueFd fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) throw_errno("syncing the folder '" + base::shown(folder) + "'");
}

}  // namespace lockstep::data
