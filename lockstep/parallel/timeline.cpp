#include "lockstep/parallel/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"

namespace lockstep::parallel {
namespace {

constexpr std::string_view kPlaceOfTheStep = "@";  // in no name of a phase

[[noreturn]] void refuse_file(const std::string& path, const char* what) {
  throw Error("timeline '" + path + "': " + what + ": " + std::strerror(errno));
}

base::UniqueFd opened(const std::string& path, int flags) {
  base::UniqueFd file(::open(path.c_str(), flags | O_WRONLY | O_CLOEXEC, 0644));
  if (!file) refuse_file(path, "cannot open it");
  return file;
}

// In one call, so that lines of several ranks do not mix.
bool append_whole(int fd, std::string_view text) {
  for (;;) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written == ssize_t(text.size())) return true;
    if (written >= 0) errno = ENOSPC;
    if (errno != EINTR) return false;
  }
}

std::string microseconds(std::chrono::nanoseconds time) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.3f", double(time.count()) / 1e3);
  return text.data();
}

std::string process_name(int rank) {
  return R"({"name":"process_name","ph":"M","pid":)" + std::to_string(rank) + R"(,"args":{"name":"rank )" +
         std::to_string(rank) + "\"}}";
}

}  // namespace

Timeline::Timeline(std::string path, int rank, std::chrono::nanoseconds shift)
    : path_(std::move(path)), rank_(rank), shift_(shift), fd_(opened(path_, O_APPEND)) {
  lines_ = process_name(rank_) + ",\n";
}

Timeline::~Timeline() {
  if (fd_) write();
}

void Timeline::add(std::string_view name, Time begin, Time end, int row) {
  if (!fd_) return;
  phases_ += R"({"name":")" + std::string(name) + R"(","ph":"X","pid":)" + std::to_string(rank_) + R"(,"tid":)" +
             std::to_string(row) + R"(,"ts":)" + microseconds(begin.time_since_epoch() + shift_) + R"(,"dur":)" +
             microseconds(end - begin) + R"(,"args":{"step":)" + std::string(kPlaceOfTheStep) + "}},\n";
}

void Timeline::note(std::string_view text) {
  if (!fd_) return;
  lines_ += R"({"name":")" + std::string(text) + R"(","ph":"i","s":"p","pid":)" + std::to_string(rank_) +
            R"(,"tid":0,"ts":)" + microseconds(std::chrono::steady_clock::now().time_since_epoch() + shift_) + "},\n";
}

void Timeline::end_step(std::uint64_t step) {
  if (!fd_) return;
  std::size_t from = 0;
  for (std::size_t at; (at = phases_.find(kPlaceOfTheStep, from)) != std::string::npos; from = at + 1)
    lines_ += phases_.substr(from, at - from) + std::to_string(step);
  lines_ += phases_.substr(from);
  phases_.clear();
  write();
}

void Timeline::write() {
  if (!append_whole(fd_.get(), lines_)) {
    base::Outlet::console(STDERR_FILENO)
        .offer("lockstep: warning: timeline '" + path_ + "' ends here: " + std::strerror(errno) + "\n");
    fd_ = {};
  }
  lines_.clear();
}

void Timeline::begin(const std::string& path) {
  if (!append_whole(opened(path, O_CREAT | O_TRUNC).get(), "[\n")) refuse_file(path, "cannot write it");
}

// The array's last element has no comma behind it.
void Timeline::end(const std::string& path) {
  if (!append_whole(opened(path, O_APPEND).get(), process_name(0) + "\n]\n")) refuse_file(path, "cannot write it");
}

}  // namespace lockstep::parallel
