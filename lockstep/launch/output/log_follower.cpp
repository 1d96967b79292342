#include "lockstep/launch/output/log_follower.h"

#include <algorithm>
#include <utility>

namespace lockstep::launch {
namespace {

constexpr std::size_t kWindow = 64 << 10;

}  // namespace

Follower::Follower(base::Outlet outlet, std::string name)
    : outlet_(std::move(outlet)), name_(std::move(name)), buffer_(kWindow, '\0') {}

bool Follower::pending() const {
  if (outlet_.closed()) return false;
  return outlet_.pending() || !messages_.empty() || mid_line_ ||
         std::any_of(files_.begin(), files_.end(), [](const Followed& f) { return f.shown < f.file->whole(); });
}

off_t Follower::shown(const LogFile& file) const {
  off_t shown = file.whole();
  for (const Followed& followed : files_)
    if (followed.file == &file && !outlet_.closed()) shown = std::min(shown, followed.shown);
  return shown;
}

void Follower::step() {
  for (std::size_t copied = outlet_.step(); copied < kWindow && !outlet_.pending() && !outlet_.closed();) {
    const std::string text = next();
    if (text.empty()) return;
    outlet_.say(text);
    copied += text.size();
  }
}

// The next line, or a piece of a line too long for the window; empty when there is none, or only lines that do not
// pass the filter were seen.
std::string Follower::next() {
  if (!mid_line_ && !messages_.empty()) {
    std::string message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }
  for (std::size_t looked = 0; looked < kWindow;) {
    if (!mid_line_ && !choose()) return {};
    Followed& file = files_[current_];
    const std::size_t size = piece(file);
    const std::string_view bytes = ahead(file).substr(0, size);
    if (bytes.empty()) {  // the file was cut by others
      file.shown = file.file->whole();
      return std::exchange(mid_line_, false) ? "\n" : "";
    }
    looked += size;
    const bool ended = line_end(bytes, true) == size || file.shown + off_t(size) == file.file->whole();
    if (!mid_line_ && !passes(file, ended ? size : 0)) continue;
    std::string text = mid_line_ ? std::string() : file.prefix;
    text += bytes;
    file.shown += off_t(size);
    mid_line_ = !ended;
    if (ended && bytes.back() != '\n' && bytes.back() != '\r') text += '\n';
    return text;
  }
  return {};
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
