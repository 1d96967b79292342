#include "lockstep/launch/log_follower.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kWindow = 64 << 10;
constexpr std::chrono::milliseconds kTerminalRest{20};
constexpr std::chrono::milliseconds kDiskRest{1'000};

bool disk_is_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

void set_timer(int milliseconds) {
  const timeval interval{.tv_sec = 0, .tv_usec = suseconds_t{milliseconds} * 1'000};
  const itimerval timer{.it_interval = interval, .it_value = interval};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

// A write that waits ends with EINTR, or with what it has written so far, after 100 ms.
ssize_t write_at_most_100_ms(int fd, std::string_view bytes) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, nullptr);
  set_timer(100);
  const ssize_t count = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), PIPE_BUF));
  const int error = errno;
  set_timer(0);
  errno = error;
  return count;
}

}  // namespace

Outlet Outlet::console(int fd) {
  Outlet outlet;
  outlet.fd_ = fd;
  struct stat status {};
  if (fstat(fd, &status) != 0) outlet.mode_ = Mode::closed;
  if (S_ISSOCK(status.st_mode)) outlet.mode_ = Mode::socket;
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return outlet;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  outlet.own_ = base::UniqueFd(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  // ENXIO: a pipe that nobody reads.
  if (!outlet.own_) outlet.mode_ = errno == ENXIO ? Mode::closed : Mode::blocking;
  return outlet;
}

Outlet Outlet::file(const std::string& path) {
  Outlet outlet;
  outlet.own_ = base::UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!outlet.own_)
    throw UsageError("cannot write the log '" + path + "': " + std::strerror(errno) +
                     "; name a folder with --log-dir that can be written to");
  return outlet;
}

ssize_t Outlet::write(std::string_view bytes) const {
  if (mode_ == Mode::closed) return -EPIPE;
  ssize_t count = -1;
  if (mode_ == Mode::socket)
    count = send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  else if (mode_ == Mode::blocking)
    count = write_at_most_100_ms(fd_, bytes);
  else
    count = ::write(fd(), bytes.data(), bytes.size());
  if (count >= 0) return count;
  return errno == EINTR || errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

Follower::Follower(Outlet outlet, std::string name)
    : outlet_(std::move(outlet)), name_(std::move(name)), buffer_(kWindow, '\0') {}

bool Follower::pending() const {
  if (closed_) return false;
  return !out_.empty() || !messages_.empty() || mid_line_ ||
         std::any_of(files_.begin(), files_.end(), [](const Followed& f) { return f.shown < f.file->whole(); });
}

off_t Follower::shown(const LogFile& file) const {
  off_t shown = file.whole();
  for (const Followed& followed : files_)
    if (followed.file == &file && !closed_) shown = std::min(shown, followed.shown);
  return shown;
}

void Follower::step() {
  for (std::size_t copied = 0; copied < kWindow && !closed_;) {
    if (out_.empty() && !prepare()) return;
    const ssize_t count = outlet_.write(std::string_view(out_).substr(out_done_));
    if (count < 0) {
      const bool later = count == -EAGAIN;
      if (!later) error_ = int(-count);
      closed_ = !later && !disk_is_full(error_);
      // EAGAIN after some bytes is what poll() is for; as the first answer it belies poll().
      if (!later || copied == 0) rests_until_ = Clock::now() + (later ? kTerminalRest : kDiskRest);
      return;
    }
    error_ = 0;
    copied += std::size_t(count);
    out_done_ += std::size_t(count);
    if (out_done_ < out_.size()) continue;
    out_.clear();
    out_done_ = 0;
    if (outlet_.needs_poll()) return;
  }
}

// Fills out_ with the next line, or a piece of a line too long for the window; false when
// there is none, or only lines that do not pass the filter were seen.
bool Follower::prepare() {
  if (!mid_line_ && !messages_.empty()) {
    out_ = std::move(messages_.front());
    messages_.pop_front();
    return true;
  }
  for (std::size_t looked = 0; looked < kWindow;) {
    if (!mid_line_ && !choose()) return false;
    Followed& file = files_[current_];
    const std::size_t size = piece(file);
    const std::string_view bytes = ahead(file).substr(0, size);
    if (bytes.empty()) {  // the file was cut by others
      file.shown = file.file->whole();
      if (mid_line_) out_ = "\n";
      mid_line_ = false;
      return !out_.empty();
    }
    looked += size;
    const bool ended = line_end(bytes, true) == size || file.shown + off_t(size) == file.file->whole();
    if (!mid_line_ && !passes(file, ended ? size : 0)) continue;
    if (!mid_line_) out_ = file.prefix;
    out_ += bytes;
    file.shown += off_t(size);
    mid_line_ = !ended;
    if (ended && bytes.back() != '\n' && bytes.back() != '\r') out_ += '\n';
    return true;
  }
  return false;
}

// The current file as long as its window holds lines, then the next that has some: turning to
// another for every line would read each window once a line.
bool Follower::choose() {
  if (files_.empty()) return false;
  if (!window_.empty() && line_end(ahead(files_[current_]), false) != std::string_view::npos) return true;
  for (std::size_t i = 1; i <= files_.size(); ++i) {
    const std::size_t candidate = (current_ + i) % files_.size();
    if (files_[candidate].shown >= files_[candidate].file->whole()) continue;
    if (candidate != current_) window_ = {};
    current_ = candidate;
    return true;
  }
  return false;
}

// What is in memory from file.shown on.
std::string_view Follower::ahead(const Followed& file) {
  const off_t skip = file.shown - window_start_;
  return skip < 0 || skip >= off_t(window_.size()) ? std::string_view() : window_.substr(std::size_t(skip));
}

// Bytes ahead up to the end of the line, or all but an undecided "\r" of a line that is longer
// than the window. Reads more when that helps.
std::size_t Follower::piece(const Followed& file) {
  const off_t whole = file.file->whole();
  const auto last = [&] { return window_start_ + off_t(window_.size()) >= whole; };
  std::size_t end = line_end(ahead(file), !window_.empty() && last());
  if (end == std::string_view::npos) {
    window_ = file.file->read(file.shown, buffer_);
    window_start_ = file.shown;
    window_ = window_.substr(0, std::size_t(std::min(off_t(window_.size()), whole - file.shown)));
    end = line_end(window_, last());
  }
  if (end != std::string_view::npos) return end;
  return window_.size() - (window_.size() > 1 && window_.back() == '\r' ? 1 : 0);
}

// Passes over a line that is not wanted. `line` is its size, 0 when it goes beyond the window.
bool Follower::passes(Followed& file, std::size_t line) {
  if (file.filters.empty()) return true;
  if (line == 0) return long_line_passes(file);
  const std::string_view text = ahead(file).substr(0, line);
  const auto holds = [&](const std::string& filter) { return text.find(filter) != std::string_view::npos; };
  if (std::any_of(file.filters.begin(), file.filters.end(), holds)) return true;
  file.shown += off_t(line);
  return false;
}

bool Follower::long_line_passes(Followed& file) const {
  std::size_t overlap = 1;
  for (const std::string& filter : file.filters) overlap = std::max(overlap, filter.size());
  std::string buffer(kWindow + 2 * overlap, '\0');
  for (off_t at = file.shown;;) {
    const off_t left = file.file->whole() - at;
    std::string_view text = file.file->read(at, buffer);
    text = text.substr(0, std::size_t(std::min(off_t(text.size()), left)));
    const std::size_t end = line_end(text, off_t(text.size()) == left);
    const std::string_view line = text.substr(0, end);
    const auto holds = [&](const std::string& filter) { return line.find(filter) != std::string_view::npos; };
    if (std::any_of(file.filters.begin(), file.filters.end(), holds)) return true;
    if (end != std::string_view::npos || text.size() <= overlap || off_t(text.size()) == left) {
      file.shown = at + off_t(line.size());
      return false;
    }
    at += off_t(text.size() - overlap);
  }
}

}  // namespace lockstep::launch
