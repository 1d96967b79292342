#include "lockstep/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep::base {
namespace {

std::string aside_name(const std::string& path) {
  static std::atomic<unsigned> count{0};
  return path + ".part-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  struct stat target {};
  if (path_.empty() || path_.back() == '/' || (::stat(path_.c_str(), &target) == 0 && !S_ISREG(target.st_mode))) {
    throw UsageError("cannot write '" + path_ + "': a file name is needed, and this is none");
  }
  aside_ = aside_name(path_);
  fd_ = UniqueFd(::open(aside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd_) {
    aside_.clear();
    throw UsageError("cannot write '" + path_ + "': " + std::strerror(errno));
  }
}

AtomicFile::~AtomicFile() {
  if (!aside_.empty()) ::unlink(aside_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(fd_.get(), next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_errno("writing '" + path_ + "'");
    next += written;
    bytes -= std::size_t(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_.get()) != 0) throw_errno("syncing '" + path_ + "'");
  if (::rename(aside_.c_str(), path_.c_str()) != 0) throw_errno("renaming to '" + path_ + "'");
  aside_.clear();
  // The rename itself is on disk only when the folder is.
  const UniqueFd folder(::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) throw_errno("syncing the folder of '" + path_ + "'");
}

}  // namespace lockstep::base
