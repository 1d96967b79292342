#include "lockstep/launch/output/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

// Space is given back in steps of this size.
constexpr off_t kForget = 1 << 20;

base::UniqueFd open_log(const std::string& path, Files files) {
  const int how = files == Files::anew ? O_TRUNC : 0;
  if (!path.empty()) return base::UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | how, 0644));
  const char* folder = std::getenv("TMPDIR");
  std::string name = std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") + "/lockstep_XXXXXX";
  base::UniqueFd fd(mkostemp(name.data(), O_CLOEXEC));
  if (fd) unlink(name.c_str());
  return fd;
}

}  // namespace

std::size_t line_end(std::string_view bytes, bool final) {
  const std::size_t at = bytes.find_first_of("\n\r");
  if (at == std::string_view::npos || bytes[at] == '\n') return at == std::string_view::npos ? at : at + 1;
  if (at + 1 == bytes.size()) return final ? at + 1 : std::string_view::npos;
  return at + (bytes[at + 1] == '\n' ? 2 : 1);
}

LogFile::LogFile(std::string path, Files files) : path_(std::move(path)), fd_(open_log(path_, files)) {
  if (!fd_)
    throw UsageError("cannot write the log " + (path_.empty() ? "in TMPDIR" : "'" + path_ + "'") + ": " +
                     std::strerror(errno) + "; name a folder with --log-dir that can be written to");
  written_ = whole_ = lseek(fd_.get(), 0, SEEK_END);
}

void LogFile::append(std::string_view bytes) {
  if (bytes.empty()) return;
  const std::size_t taken = unnoted_ == 0 || write_note() ? put(bytes) : 0;
  missing_ += bytes.size() - taken;
  unnoted_ += bytes.size() - taken;
}

void LogFile::end() {
  if (unnoted_ > 0) write_note();
  whole_ = written_;
}

std::string_view LogFile::read(off_t offset, std::string& buffer) const {
  ssize_t got = 0;
  do {
    got = pread(fd_.get(), buffer.data(), buffer.size(), offset);
  } while (got < 0 && errno == EINTR);
  return std::string_view(buffer).substr(0, got > 0 ? std::size_t(got) : 0);
}

void LogFile::forget(off_t offset) {
  if (!path_.empty() || offset - forgotten_ < kForget) return;
  // Where the file system cannot, the file only stays larger.
  fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, forgotten_, offset - forgotten_);
  forgotten_ = offset;
}

// All of it or nothing: half a note would tell a wrong number.
bool LogFile::write_note() {
  const std::string note = std::string(last_ == '\n' ? "" : "\n") + "lockstep: " + std::to_string(unnoted_) +
                           " bytes are missing here: " + std::strerror(error_) + "\n";
  const off_t start = written_;
  const off_t whole = whole_;
  const char last = last_;
  if (put(note) == note.size()) {
    unnoted_ = 0;
    return true;
  }
  written_ = start;
  whole_ = whole;
  last_ = last;
  [[maybe_unused]] const int cut = ftruncate(fd_.get(), start);
  return false;
}

std::size_t LogFile::put(std::string_view bytes) {
  std::size_t taken = 0;
  while (taken < bytes.size()) {
    const ssize_t count = pwrite(fd_.get(), bytes.data() + taken, bytes.size() - taken, written_ + off_t(taken));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      error_ = count < 0 ? errno : ENOSPC;
      break;
    }
    taken += std::size_t(count);
  }
  mark(written_, bytes.substr(0, taken));
  written_ += off_t(taken);
  return taken;
}

void LogFile::mark(off_t start, std::string_view bytes) {
  if (bytes.empty()) return;
  if (last_ == '\r' && bytes.front() != '\n') whole_ = start;
  last_ = bytes.back();
  if (last_ == '\r') bytes.remove_suffix(1);
  const std::size_t at = bytes.find_last_of("\n\r");
  if (at != std::string_view::npos) whole_ = start + off_t(at) + 1;
}

}  // namespace lockstep::launch
