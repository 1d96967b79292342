#include "lockstep/base/text.h"

#include <algorithm>

namespace lockstep::base {

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table: a swap looks two rows back.
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = int(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = int(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  const auto closer = [&](const std::string& a, const std::string& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  };
  const auto best = std::min_element(names.begin(), names.end(), closer);
  return best == names.end() ? std::string() : *best;
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    if (&word != &words.front()) text += separator;
    text += word;
  }
  return text;
}

std::string unknown_name(std::string_view kind, std::string_view word, const std::vector<std::string>& names) {
  std::string text = "unknown " + std::string(kind) + " '" + std::string(word) + "'";
  if (names.empty()) return text;
  return text + ": did you mean '" + nearest(word, names) + "'? (one of " + join(names) + ")";
}

}  // namespace lockstep::base
