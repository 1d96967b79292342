#include "lockstep/data/fetch/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "lockstep/base/terminal.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};

}  // namespace

std::string bar_text(const std::string& file, std::uint64_t done, std::uint64_t bytes, int columns) {
  constexpr std::uint64_t kCells = 20;
  const double part = bytes > 0 ? double(done) / double(bytes) : 1;
  const auto full = std::size_t(part * kCells);
  const std::string percent = std::to_string(int(part * 100));
  std::string text = file + "  [" + std::string(full, '#') + std::string(kCells - full, '-') + "]  " +
                     std::string(3 - std::min<std::size_t>(percent.size(), 3), ' ') + percent + " %  " +
                     base::size_text(done) + " of " + base::size_text(bytes);
  // A line that wraps could not be rewritten; the last column is left free as well.
  if (columns > 1) text.resize(std::min(text.size(), std::size_t(columns - 1)));
  return text;
}

DownloadProgress::DownloadProgress(int fd) : fd_(fd), terminal_(fd >= 0 && ::isatty(fd) == 1) {}

void DownloadProgress::begin(const std::string& file, const std::string& url, std::uint64_t done, std::uint64_t bytes) {
  file_ = file;
  bytes_ = bytes;
  tenth_ = done * 10 / bytes;
  drawn_ = {};
  say(file + ": " + base::size_text(bytes) + " from " + base::shown(url) +
      (done > 0 ? ", going on after " + base::size_text(done) : ""));
}

void DownloadProgress::advance(std::uint64_t done) {
  if (!terminal_) {
    const std::uint64_t tenth = done * 10 / bytes_;
    if (tenth > tenth_) write(file_ + ": " + std::to_string(tenth * 10) + " %\n");
    tenth_ = tenth;
    return;
  }
  if (done < bytes_ && Clock::now() - drawn_ < kRedraw) return;
  drawn_ = Clock::now();
  write("\r" + bar_text(file_, done, bytes_, base::terminal_columns(fd_)) + "\x1b[K");
  line_open_ = true;
}

void DownloadProgress::say(const std::string& text) {
  write((line_open_ ? "\n" : "") + text + "\n");
  line_open_ = false;
}

void DownloadProgress::write(const std::string& text) {
  std::string_view rest = text;
  while (fd_ >= 0 && !rest.empty()) {
    const ssize_t count = ::write(fd_, rest.data(), rest.size());
    if (count < 0 && errno != EINTR) return;
    if (count > 0) rest.remove_prefix(std::size_t(count));
  }
}

}  // namespace lockstep::data
