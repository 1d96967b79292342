#include "lockstep/flags/man_page.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "lockstep/base/text.h"

namespace lockstep::flags {
namespace {

// As text, whatever roff would make of it: a dash that stays one when it is copied, no request at a line's begin. A
// line may end behind the stroke of a choice.
std::string literal(const std::string& text) {
  std::string result = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) result += c == '\\' ? "\\e" : c == '-' ? "\\-" : c == '|' ? "|\\:" : std::string(1, c);
  return result;
}

std::string bold(const std::string& text) { return "\\fB" + literal(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + literal(text) + "\\fR"; }

// Lines as they are; those with an indent, which are examples or lists, are not filled.
std::string roff_lines(const std::string& text, bool filled) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool own = !filled || line.starts_with(' ');
    result += own && !result.empty() ? ".br\n" : "";
    result += line.empty() ? ".PP\n" : literal(line.substr(line.find_first_not_of(' '))) + "\n";
  }
  return result;
}

std::string section(const std::string& title, const std::string& text) {
  return text.empty() ? "" : ".SH " + title + "\n" + text;
}

std::string entry(const std::string& head, const std::string& text) {
  return ".TP\n" + head + "\n" + (text.empty() ? "\\&" : literal(text)) + "\n";
}

std::string entry(const Flag& flag) {
  const std::string name = name_of(flag);
  std::string head = bold(name);
  if (flag.names.size() > name.size()) head = bold(flag.names.substr(0, flag.names.find(','))) + ", " + head;
  if (!flag.value.word.empty()) head += " " + italic(word_of(flag));
  return entry(head, text_of(flag));
}

std::string options(const Table& table) {
  std::string text;
  for (const Flag& flag : standing_flags(table)) text += entry(flag);
  for (const Group& group : table.groups) {
    if (!group.title.empty()) text += ".SS " + literal(group.title) + "\n";
    for (const Flag& flag : group.flags) text += entry(flag);
  }
  return text;
}

std::string commands(const Command& command) {
  std::string text;
  for (const Command& below : command.commands) text += entry(bold(below.name), below.summary);
  return text;
}

// The pages of the others that have one, with commas between them.
std::string others(const Command& root, const std::string& own_path) {
  std::vector<std::string> pages;
  for (const Place& place : places_of(root))
    if (place.path != own_path && !place.command->table.usage.empty()) pages.push_back(bold(page_name(place)) + "(1)");
  return pages.empty() ? "" : base::join(pages, ",\n") + "\n";
}

}  // namespace

std::string page_name(const Place& place) {
  std::string name = place.path;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string man_page(const Command& root, const Place& place, const std::string& version) {
  const Command& command = *place.command;
  const Table& table = command.table;
  std::string title = page_name(place);
  for (char& c : title) c = char(std::toupper(static_cast<unsigned char>(c)));
  // Names are neither hyphenated nor pulled apart.
  return ".TH " + literal(title) + " 1 \"\" \"" + literal(version) + "\"\n.nh\n.ad l\n" +
         section("NAME", literal(page_name(place)) + " \\- " + literal(command.summary) + "\n") +
         section("SYNOPSIS", roff_lines(table.usage, false)) + section("DESCRIPTION", roff_lines(table.about, true)) +
         section("COMMANDS", commands(command)) + section("OPTIONS", options(table)) +
         section("NOTES", roff_lines(table.after, true)) + section("SEE ALSO", others(root, place.path));
}

}  // namespace lockstep::flags
