#include "lockstep/metrics/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep::metrics {

LineFile::LineFile(std::string path) : path_(std::move(path)) {
  fd_ = base::UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  struct stat status {};
  if (!fd_ || ::fstat(fd_.get(), &status) != 0) throw_errno(path_);
  is_new_ = status.st_size == 0;
}

void LineFile::append(std::string_view record) {
  const off_t start = ::lseek(fd_.get(), 0, SEEK_END);
  std::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t count = ::write(fd_.get(), rest.data(), rest.size());
    if (count >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      const int reason = errno;
      if (start >= 0 && rest.size() < record.size()) {
        // Best effort: the failure that gets reported is the write's.
        [[maybe_unused]] const int result = ::ftruncate(fd_.get(), start);
      }
      errno = reason;
      throw_errno(path_);
    }
  }
}

}  // namespace lockstep::metrics
