#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// The end of what a worker printed, where it went into a file.
struct LogTail {
  std::string file;
  std::vector<std::string> lines;
};

/// The last `count` lines of a file, oldest first, without their ends ("\n" or "\r\n"). At most
/// the last `max_bytes` of the file are read; a line that begins before them is cut at its
/// front. Text that is no UTF-8 is replaced by U+FFFD, so the lines can go into JSON. Of
/// a progress bar ("\r" inside a line) only the last state is kept. Empty when the file is
/// missing or cannot be read: there is nothing to tell then.
std::vector<std::string> last_lines(const std::string& path, std::size_t count, std::size_t max_bytes);

/// `bytes` with every byte that belongs to no well-formed UTF-8 character replaced by U+FFFD.
std::string valid_utf8(std::string_view bytes);

}  // namespace lockstep::launch
