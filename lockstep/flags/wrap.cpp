#include "lockstep/flags/wrap.h"

#include <algorithm>
#include <sstream>
#include <vector>

namespace lockstep::flags {
namespace {

constexpr std::size_t kLeastText = 24;   // columns; with fewer beside the names, the text has lines of its own
constexpr std::size_t kIndentBelow = 4;  // of such lines, from where the names begin

std::string without_blanks_behind(const std::string& text) { return text.substr(0, text.find_last_not_of(' ') + 1); }

// Where the text of a row stands: behind the first gap after its names. Of another line: where it begins.
std::size_t text_column(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(' ');
  const std::size_t gap = begin > 0 ? line.find("  ", begin) : std::string::npos;
  return gap == std::string::npos ? begin : line.find_first_not_of(' ', gap);
}

// What a line may end with: a word and its blank, a name and its stroke.
std::vector<std::string> pieces_of(const std::string& text) {
  std::vector<std::string> pieces(1);
  for (const char c : text) {
    pieces.back() += c;
    if (c == ' ' || c == '|') pieces.emplace_back();
  }
  return pieces;
}

std::string folded(const std::string& line, std::size_t columns) {
  std::size_t indent = text_column(line);
  const std::string text = line.substr(indent);
  std::string rows, row = line.substr(0, indent);
  if (const std::size_t begin = line.find_first_not_of(' '); indent > begin && indent + kLeastText > columns) {
    rows = without_blanks_behind(row) + "\n";
    indent = begin + kIndentBelow;
    row.assign(indent, ' ');
  }
  for (const std::string& piece : pieces_of(text)) {
    if (row.size() > indent && row.size() + without_blanks_behind(piece).size() > columns) {
      rows += without_blanks_behind(row) + "\n";
      row.assign(indent, ' ');
    }
    row += piece;
  }
  return rows + without_blanks_behind(row) + "\n";
}

bool is_prose(const std::string& line) { return !line.empty() && line.front() != ' '; }

std::string filled(const std::vector<std::string>& paragraph, std::size_t columns) {
  const bool fits = std::ranges::all_of(paragraph, [&](const std::string& line) { return line.size() <= columns; });
  std::string text;
  for (const std::string& line : paragraph) text += line + (fits ? "\n" : " ");
  return fits ? text : folded(without_blanks_behind(text), columns);
}

}  // namespace

std::string wrapped(const std::string& text, std::size_t columns) {
  if (columns == 0) return text;
  std::string result;
  std::vector<std::string> paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) result += filled(paragraph, columns);
    paragraph.clear();
  };
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (is_prose(line)) {
      paragraph.push_back(line);
      continue;
    }
    end_paragraph();
    result += line.size() <= columns ? line + "\n" : folded(line, columns);
  }
  end_paragraph();
  return result;
}

}  // namespace lockstep::flags
