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
