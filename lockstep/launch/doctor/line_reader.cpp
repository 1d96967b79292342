#include "lockstep/launch/doctor/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace lockstep::launch {
namespace {

constexpr std::size_t kLongestLine = std::size_t(1) << 20;

bool is_ready(int fd, short events, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd watched{fd, events, 0};
    const int ready = poll(&watched, 1, int(std::max<std::int64_t>(left, 0)));  // what is there already counts
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

}  // namespace

std::optional<std::string> LineReader::next(std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    if (const std::size_t end = rest_.find('\n'); end != std::string::npos) {
      std::string line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      return line;
    }
    char piece[4096];
    if (rest_.size() > kLongestLine || !is_ready(fd_, POLLIN, deadline)) return std::nullopt;
    const ssize_t count = read(fd_, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    rest_.append(piece, std::size_t(count));
  }
}

bool write_line(int fd, const std::string& line, std::chrono::steady_clock::time_point deadline) {
  const std::string text = line + "\n";
  for (std::size_t at = 0; at < text.size();) {
    if (!is_ready(fd, POLLOUT, deadline)) return false;
    // A pipe that poll calls ready takes this much at once.
    const ssize_t count = write(fd, text.data() + at, std::min<std::size_t>(text.size() - at, 4096));
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) at += std::size_t(count);
  }
  return true;
}

}  // namespace lockstep::launch
