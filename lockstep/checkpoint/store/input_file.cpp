#include "lockstep/checkpoint/store/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {

InputFile::InputFile(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat info {};
  if (!fd_ || ::fstat(fd_.get(), &info) != 0) throw UsageError("cannot open '" + path + "': " + std::strerror(errno));
  if (!S_ISREG(info.st_mode)) throw UsageError("cannot read '" + path + "': not a regular file");
  size_ = std::uint64_t(info.st_size);
}

void InputFile::read(std::uint64_t offset, void* out, std::uint64_t bytes) const {
  char* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd_.get(), next, bytes, off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(offset, std::strerror(errno));
    if (got == 0) fail(offset, "the file became shorter while it was read");
    next += got;
    offset += std::uint64_t(got);
    bytes -= std::uint64_t(got);
  }
}

std::string InputFile::bytes(std::uint64_t offset, std::uint64_t count) const {
  std::string bytes(count, '\0');
  read(offset, bytes.data(), count);
  return bytes;
}

std::string InputFile::text(std::uint64_t most) const {
  if (size_ > most) fail(most, "a file of " + std::to_string(size_) + " bytes, " + std::to_string(most) + " at most");
  return bytes(0, size_);
}

void InputFile::drop_cache() const { ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED); }

void InputFile::fail(std::uint64_t offset, const std::string& what) const {
  throw UsageError("'" + path_ + "': " + what + " at offset " + std::to_string(offset));
}

}  // namespace lockstep::checkpoint
