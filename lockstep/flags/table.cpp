#include "lockstep/flags/table.h"

#include <algorithm>
#include <utility>

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
  return line_of_help(flag.names + (flag.value.word.empty() ? "" : " " + flag.value.word), text_of(flag));
}

}  // namespace

std::string name_of(const Flag& flag) { return flag.names.substr(flag.names.find("--")); }

std::string key_of(const Flag& flag) {
  std::string key = name_of(flag).substr(flag.value.negated ? 5 : 2);  // "--no-" or "--"
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
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

std::string help(const Table& table) {
  std::string text = "usage: " + table.usage + "\n\n" + table.about + (table.about.empty() ? "" : "\n") + "Options:\n";
  for (const Flag& flag : standing_flags(table)) text += line_of_help(flag);
  for (const Group& group : table.groups) {
    if (!group.title.empty()) text += "\n" + group.title + ":\n";
    for (const Flag& flag : group.flags) text += line_of_help(flag);
  }
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
