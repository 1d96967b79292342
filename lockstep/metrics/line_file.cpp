#include "lockstep/metrics/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/text.h"

namespace lockstep::metrics {
namespace {

// Of a disk; all else is a mistake of ours, or of who has closed the file.
bool is_of_the_disk(int reason) { return reason == ENOSPC || reason == EDQUOT || reason == EROFS || reason == EIO; }

}  // namespace

LineFile::LineFile(std::string path) : path_(std::move(path)) {
  fd_ = base::UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  struct stat status {};
  if (!fd_ || ::fstat(fd_.get(), &status) != 0) throw_errno(path_);
  is_new_ = status.st_size == 0;
}

LineFile LineFile::of_lines(std::string path) {
  LineFile file(std::move(path));
  file.cut_torn_line();
  return file;
}

void LineFile::cut_torn_line() {
  const off_t size = ::lseek(fd_.get(), 0, SEEK_END);
  off_t end = size;
  for (char last = 0; end > 0 && last != '\n';) {
    const ssize_t count = ::pread(fd_.get(), &last, 1, end - 1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_errno(path_);
    if (last != '\n') --end;
  }
  if (end == size) return;
  if (::ftruncate(fd_.get(), end) != 0) throw_errno(path_);
  is_new_ = end == 0;
}

void LineFile::append(std::string_view record) {
  // Behind a part of a record nothing is written: it would be one with it.
  if (torn_at_ >= 0 && !take_back()) return refuse(torn_by_);
  const off_t start = ::lseek(fd_.get(), 0, SEEK_END);
  std::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t count = ::write(fd_.get(), rest.data(), rest.size());
    if (count >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      const int reason = errno;
      if (start >= 0 && rest.size() < record.size()) {
        torn_at_ = start;
        torn_by_ = reason;
        take_back();
      }
      return refuse(reason);
    }
  }
}

// That it cannot be is told by nobody: the failure that gets reported is the write's.
bool LineFile::take_back() {
  if (::ftruncate(fd_.get(), torn_at_) != 0) return false;
  torn_at_ = -1;
  return true;
}

void LineFile::refuse(int reason) {
  if (when_refused_ == WhenRefused::leaves_out && is_of_the_disk(reason)) return tell_left_out(reason);
  errno = reason;
  throw_errno(path_);
}

void LineFile::tell_left_out(int reason) {
  if (std::exchange(is_told_, true)) return;
  base::tell(STDERR_FILENO, "lockstep: warning: '" + base::shown(path_) + "': " + std::strerror(reason) +
                                "; what it does not take is left out, training goes on\n");
}

}  // namespace lockstep::metrics
