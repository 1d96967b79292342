#include "lockstep/base/text.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

namespace lockstep::base {
namespace {

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

/// Restricted Damerau-Levenshtein distance (optimal string alignment).
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = same_letter(a[i - 1], b[j - 1]) ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]))
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

bool begins_with(std::string_view name, std::string_view start) {
  return start.size() <= name.size() && std::equal(start.begin(), start.end(), name.begin(), same_letter);
}

/// One edit in a word of up to 3 letters, two in one of up to 8, a third of it beyond.
std::size_t most_edits(std::size_t length) { return std::max<std::size_t>(length / 3, length <= 3 ? 1 : 2); }

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

/// The length of the character of UTF-8 that `text` begins with; 0: none, or a control character.
std::size_t printable(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  if (!std::all_of(text.begin() + 1, text.begin() + std::ptrdiff_t(length), continues)) return 0;
  const unsigned char second = byte(1);
  if (first == 0xc2 && second < 0xa0) return 0;  // U+0080 to U+009F: control characters
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool no_character = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return overlong || no_character ? 0 : length;
}

std::string escaped(char byte) {
  constexpr const char* kDigits = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  if (byte == '\n') return "\\n";
  if (byte == '\r') return "\\r";
  if (byte == '\t') return "\\t";
  return {'\\', 'x', kDigits[value >> 4], kDigits[value & 15]};
}

}  // namespace

std::string nearest(std::string_view wrong, const std::vector<std::string>& valid) {
  // No name is that long, and the table grows with the square.
  if (wrong.empty() || wrong.size() > 200) return "";
  std::string best;
  std::size_t fewest = most_edits(wrong.size()) + 1;
  for (const std::string& name : valid) {
    const std::size_t count = edits(wrong, name);
    // As many edits as letters would make any word of any other.
    if (count < fewest && count < std::max(wrong.size(), name.size())) {
      fewest = count;
      best = name;
    }
  }
  if (!best.empty()) return best;
  const auto begins = [&](const std::string& name) { return begins_with(name, wrong); };
  if (std::count_if(valid.begin(), valid.end(), begins) != 1) return "";
  return *std::find_if(valid.begin(), valid.end(), begins);
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    if (&word != &words.front()) text += separator;
    text += word;
  }
  return text;
}

std::string unknown_name(std::string_view kind, std::string_view wrong, const std::vector<std::string>& valid) {
  std::string text = "unknown " + std::string(kind) + " '" + std::string(wrong) + "'";
  const std::string meant = nearest(wrong, valid);
  if (!meant.empty()) text += ": did you mean '" + meant + "'?";
  return valid.empty() ? text : text + " (one of " + join(valid) + ")";
}

std::string shown(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const std::size_t length = printable(text);
    if (length > 0) {
      line += text.substr(0, length);
    } else {
      line += escaped(text[0]);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return line;
}

std::string small_letters(std::string text) {
  for (char& letter : text)
    if (letter >= 'A' && letter <= 'Z') letter = char(letter - 'A' + 'a');
  return text;
}

std::string runs_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const int first = numbers[i];
    while (i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1) ++i;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (numbers[i] > first) text += " to " + std::to_string(numbers[i]);
  }
  return text;
}

std::string size_text(std::uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double size = double(bytes) / 1024;
  std::size_t unit = 0;
  for (; size >= 1023.95; size /= 1024) ++unit;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", size, units[unit]);
  return text;
}

}  // namespace lockstep::base
