#include "lockstep/launch/output/last_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {
namespace {

std::string read_end(const std::string& path, std::size_t max_bytes) {
  // O_NONBLOCK: a FIFO under that name must not stop us.
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const off_t size = fd ? lseek(fd.get(), 0, SEEK_END) : -1;
  if (size <= 0) return {};
  const off_t start = std::max<off_t>(0, size - off_t(max_bytes));
  std::string text(std::size_t(size - start), '\0');
  std::size_t got = 0;
  while (got < text.size()) {
    const ssize_t count = pread(fd.get(), text.data() + got, text.size() - got, start + off_t(got));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    got += std::size_t(count);
  }
  text.resize(got);
  return text;
}

// Length of the well-formed character at the start of `bytes`, or 0 (table 3-7 of the Unicode standard).
std::size_t character(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U; };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (at(1) < low || at(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i)
    if ((at(i) & 0xC0) != 0x80) return 0;
  return length;
}

}  // namespace

std::string valid_utf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t length = character(bytes);
    text += length > 0 ? bytes.substr(0, length) : std::string_view("\xEF\xBF\xBD");
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return text;
}

std::vector<std::string> last_lines(const std::string& path, std::size_t count, std::size_t max_bytes) {
  const std::string text = read_end(path, max_bytes);
  std::string_view rest = text;
  if (rest.ends_with('\n')) rest.remove_suffix(1);
  std::vector<std::string> lines;
  bool more = !text.empty();
  while (more && lines.size() < count) {
    const std::size_t newline = rest.rfind('\n');
    more = newline != std::string_view::npos;
    std::string_view line = more ? rest.substr(newline + 1) : rest;
    if (more) rest = rest.substr(0, newline);
    while (line.ends_with('\r')) line.remove_suffix(1);
    if (const std::size_t bar = line.rfind('\r'); bar != std::string_view::npos) line.remove_prefix(bar + 1);
    lines.push_back(valid_utf8(line));
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace lockstep::launch
