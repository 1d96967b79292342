#include "lockstep/flags/table.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::flags {
namespace {

constexpr std::size_t kColumn = 34;  // of the help's texts

std::string line_of_help(const std::string& names, const std::string& text) {
  std::string line = "  " + names;
  line.resize(std::max(line.size() + 2, kColumn), ' ');
  return line + text + "\n";
}

std::string line_of_help(const Flag& flag) {
  return line_of_help(flag.names + (flag.value.word.empty() ? "" : " " + word_of(flag)), text_of(flag));
}

std::string help_of(const Group& group) {
  std::string text = group.title.empty() ? "" : group.title + ":\n";
  for (const Flag& flag : group.flags) text += line_of_help(flag);
  return text;
}

std::vector<std::string> group_names(const Table& table) {
  std::vector<std::string> names;
  for (const Group& group : table.groups) names.push_back(name_of(group));
  return names;
}

}  // namespace

std::string name_of(const Flag& flag) { return flag.names.substr(flag.names.find("--")); }

std::string key_of(const Flag& flag) {
  std::string key = name_of(flag).substr(flag.value.negated ? 5 : 2);  // "--no-" or "--"
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string word_of(const Flag& flag) {
  return flag.value.alone.empty() ? flag.value.word : "[" + flag.value.word + "]";
}

std::string text_of(const Flag& flag) {
  const Value& value = flag.value;
  std::string text = value.choices;
  if (!text.empty() && !flag.help.empty()) text += ": ";
  text += flag.help;
  if (!flag.also.empty()) text += (text.empty() ? "(also " : " (also ") + base::join(flag.also) + ")";
  const std::string& otherwise = flag.otherwise.empty() ? value.initial : flag.otherwise;
  if (!otherwise.empty()) text += (text.empty() ? "[" : " [") + otherwise + "]";
  return text;
}

Flag also_called(std::vector<std::string> names, Flag flag) {
  flag.also = std::move(names);
  return flag;
}

Flag unrecorded(Flag flag) {
  flag.value.json = nullptr;
  return flag;
}

std::string unknown_option(const std::string& name, const std::vector<std::string>& names) {
  return base::unknown_name("option", name, names);
}

std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const Group& group : table.groups)
    for (const Flag& flag : group.flags) {
      const std::string name = name_of(flag);
      if (flag.names.size() > name.size()) names.push_back(flag.names.substr(0, flag.names.find(',')));
      names.push_back(name);
    }
  names.insert(names.end(), {"-h", "--help"});
  if (!table.version.empty()) names.emplace_back("--version");
  return names;
}

std::vector<Flag> standing_flags(const Table& table) {
  std::vector<Flag> flags{{.names = "-h, --help", .help = "Print this help and exit"}};
  if (!table.version.empty()) flags.push_back({.names = "--version", .help = "Print the version and exit"});
  return flags;
}

std::vector<Flag> all_flags(const Table& table) {
  std::vector<Flag> flags = standing_flags(table);
  for (const Group& group : table.groups) flags.insert(flags.end(), group.flags.begin(), group.flags.end());
  return flags;
}

std::string name_of(const Group& group) {
  std::string name = group.title;
  for (char& letter : name) letter = letter == ' ' ? '-' : char(std::tolower(static_cast<unsigned char>(letter)));
  return name;
}

bool has_groups(const Table& table) { return table.groups.size() > 1 && !table.groups.front().title.empty(); }

std::string help(const Table& table, const std::string& name) {
  std::vector<const Group*> found;
  for (const Group& group : table.groups) {
    if (name_of(group) == name) return help_of(group);
    if (!name.empty() && name_of(group).starts_with(name)) found.push_back(&group);
  }
  if (found.size() != 1)
    throw UsageError("--help '" + base::shown(name) + "': " + (found.empty() ? "no group" : "several groups") +
                     " of flags; there are " + base::join(group_names(table)));
  return help_of(*found.front());
}

std::string help(const Table& table) {
  std::string text = "usage: " + table.usage + "\n\n" + table.about + (table.about.empty() ? "" : "\n") + "Options:\n";
  for (const Flag& flag : standing_flags(table)) text += line_of_help(flag);
  for (const Group& group : table.groups) text += (group.title.empty() ? "" : "\n") + help_of(group);
  if (has_groups(table)) text += "\n--help GROUP shows one of them: " + base::join(group_names(table)) + "\n";
  return text + (table.after.empty() ? "" : "\n") + table.after;
}

std::string json(const Table& table) {
  std::string text;
  for (const Group& group : table.groups)
    for (const Flag& flag : group.flags)
      if (flag.value.json) text += (text.empty() ? "\n  \"" : ",\n  \"") + key_of(flag) + "\": " + flag.value.json();
  return "{" + text + "\n}\n";
}

}  // namespace lockstep::flags
