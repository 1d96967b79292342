#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep::launch {

/// Lines of a descriptor, with a deadline for each.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}

  /// The next line without its end; nothing at the end of the input, at the deadline, or behind a megabyte without an
  /// end of line.
  std::optional<std::string> next(std::chrono::steady_clock::time_point deadline);

 private:
  int fd_;
  std::string rest_;
};

/// Writes all of `line` and an end of line; false when nobody takes it before the deadline. SIGPIPE must be ignored.
bool write_line(int fd, const std::string& line, std::chrono::steady_clock::time_point deadline);

}  // namespace lockstep::launch
