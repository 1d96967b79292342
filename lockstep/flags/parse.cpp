#include "lockstep/flags/parse.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::flags {
namespace {

// A value that somebody gave a flag, who calls it `name`; not read yet.
struct Setting {
  const Flag* flag;
  std::string name;
  std::string value;
  bool is_off = false;  // "--fuse=0": it sets nothing, and lets nobody below switch it on
};

// A command line, taken apart.
struct Line {
  std::string text;                 // was asked for: the rest is not there
  std::optional<UsageError> wrong;  // the first thing that is
  std::vector<Setting> settings;
  std::vector<std::string> operands;
};

// One word of it: "--grace_period=3", "-n2", "--standalone".
struct Word {
  std::string name;
  std::optional<std::string> value;
};

bool is_flag(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

bool is_switch(const Flag& flag) { return flag.value.word.empty(); }

Word take_apart(const std::string& word) {
  if (!word.starts_with("--"))  // a short flag's value may follow it directly
    return {word.substr(0, 2), word.size() > 2 ? std::optional(word.substr(2)) : std::nullopt};
  const std::size_t equals = std::min(word.find('='), word.size());
  Word parts{word.substr(0, equals), {}};
  std::replace(parts.name.begin(), parts.name.end(), '_', '-');
  if (equals < word.size()) parts.value = word.substr(equals + 1);
  return parts;
}

bool goes_by(const Flag& flag, const std::string& name) {
  const bool is_other = std::ranges::find(flag.also, name) != flag.also.end();
  return is_other || name == name_of(flag) || (name.size() == 2 && flag.names.starts_with(name + ","));
}

const Flag& find_flag(const Table& table, const Word& word, const std::string& typed) {
  for (const Group& group : table.groups)
    for (const Flag& flag : group.flags)
      if (goes_by(flag, word.name)) return flag;
  const std::string wrong = typed.starts_with("--") ? word.name : typed.substr(0, typed.find('='));
  throw UsageError(table.unknown(wrong, names_of(table)));
}

void refuse_value(const std::string& name, const Word& word) {
  if (word.value) throw UsageError(name + " takes no value, found '" + *word.value + "'");
}

// What the word asks for instead of a run, `next` the one behind it; "": nothing. Behind --help may stand a group of
// flags, and where words may stand that belong to no flag, one of those.
std::string text_asked_for(const Table& table, const Word& word, const std::string& next) {
  const bool help_asked = word.name == "-h" || word.name == "--help";
  const bool version_asked = word.name == "--version" && !table.version.empty();
  if (version_asked || (help_asked && !has_groups(table))) refuse_value(word.name, word);
  if (help_asked && word.value) return help(table, *word.value);
  const bool group_asked = has_groups(table) && table.operands == Operands::none && !next.empty() && !is_flag(next);
  if (help_asked) return group_asked ? help(table, next) : help(table);
  return version_asked ? table.version : "";
}

// A switch is given alone, or by its long name as the environment has it, "--fuse=0".
Setting read_switch(const Flag& flag, const Word& word) {
  const std::string name = name_of(flag);
  if (!word.name.starts_with("--")) refuse_value(name, word);  // "-fast" is a dash too few
  const std::string value = word.value.value_or("1");
  if (value != "0" && value != "1")
    throw UsageError(name + " takes no value but 0 or 1, found '" + base::shown(value) + "'");
  return {.flag = &flag, .name = name, .value = "", .is_off = value == "0"};
}

// The value of a flag whose word is `word`; when it has none of its own, the next word is it, and `at` moves there.
std::string value_of(const Flag& flag, const Word& word, std::vector<std::string>::const_iterator& at,
                     const std::vector<std::string>::const_iterator& end) {
  const std::string name = name_of(flag);
  if (word.value) return *word.value;
  if (!flag.value.alone.empty() && (at + 1 == end || is_flag(*(at + 1)))) return flag.value.alone;
  if (at + 1 == end) throw UsageError(name + " needs a value (" + name + " " + flag.value.word + ")");
  const std::string& next = *(at + 1);
  if (next.starts_with("--"))
    throw UsageError(name + " needs a value, found '" + next + "'; one that begins with -- is written " + name + "=" +
                     next);
  ++at;
  return next;
}

Line read_line(const Table& table, const std::vector<std::string>& words) {
  Line line;
  for (auto at = words.begin(); at != words.end(); ++at) {
    const bool ends_flags = *at == "--" && table.operands != Operands::none;
    if (ends_flags || (!is_flag(*at) && table.operands == Operands::program)) {
      line.operands.insert(line.operands.end(), at + (ends_flags ? 1 : 0), words.end());
      break;
    }
    if (!is_flag(*at)) {
      line.operands.push_back(*at);
      continue;
    }
    const Word word = take_apart(*at);
    try {
      const std::string next = at + 1 == words.end() ? "" : *(at + 1);
      if (const std::string text = text_asked_for(table, word, next); !text.empty()) return {.text = text};
      const Flag& flag = find_flag(table, word, *at);
      if (is_switch(flag))
        line.settings.push_back(read_switch(flag, word));
      else
        line.settings.push_back({&flag, name_of(flag), value_of(flag, word, at, words.end())});
    } catch (const UsageError& error) {  // who is at a loss may ask for help further on
      if (!line.wrong) line.wrong = error;
    }
  }
  return line;
}

std::string variable_of(const Table& table, const Flag& flag) {
  std::string name = table.variables + name_of(flag).substr(2);
  for (char& c : name) c = c == '-' ? '_' : char(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// Whether a variable sets its flag.
bool says_something(const Flag& flag, const std::string& variable, const std::string& value) {
  if (value.empty()) return false;
  if (!is_switch(flag)) return true;
  if (value != "0" && value != "1") throw UsageError(variable + " '" + value + "': a switch is 0 or 1");
  return value == "1";
}

std::vector<Setting> read_environment(const Table& table, const Line& line, const GetEnv& get) {
  std::vector<Setting> settings;
  if (table.variables.empty() || !get) return settings;
  for (const Group& group : table.groups)
    for (const Flag& flag : group.flags) {
      const std::string variable = variable_of(table, flag);
      const char* value = get(variable.c_str());
      if (value == nullptr || std::ranges::find(line.settings, &flag, &Setting::flag) != line.settings.end()) continue;
      if (says_something(flag, variable, value)) settings.push_back({&flag, variable, is_switch(flag) ? "" : value});
    }
  return settings;
}

// Also those that it switches off, which no setting does.
std::set<const Flag*> set_in_environment(const Table& table, const GetEnv& get) {
  std::set<const Flag*> found;
  if (table.variables.empty() || !get) return found;
  for (const Group& group : table.groups)
    for (const Flag& flag : group.flags)
      if (const char* value = get(variable_of(table, flag).c_str()); value != nullptr && *value != '\0')
        found.insert(&flag);
  return found;
}

// The flag that a file calls `key`, as the record does.
const Flag& find_key(const Table& table, const std::string& key, const std::string& file) {
  std::vector<std::string> keys;
  for (const Group& group : table.groups)
    for (const Flag& flag : group.flags) {
      if (key == key_of(flag)) return flag;
      keys.push_back(key_of(flag));
    }
  const std::string meant = base::nearest(key, keys);
  throw UsageError(file + ": there is no flag '" + base::shown(key).substr(0, 100) + "'" +
                   (meant.empty() ? "" : ": did you mean '" + meant + "'?"));
}

// What a command line would say for a JSON value; nothing: it says nothing.
std::optional<std::string> value_in_file(const Flag& flag, const std::string& name, const nlohmann::json& value) {
  const auto word_of = [](const nlohmann::json& one) { return one.is_string() ? one.get<std::string>() : one.dump(); };
  if (value.is_null() || (flag.value.json && nlohmann::json::parse(flag.value.json()) == value)) return {};
  if (value.is_object()) throw UsageError(name + " is an object, must be a number, a text, true, false or a list");
  if (is_switch(flag)) {
    if (!value.is_boolean()) throw UsageError(name + " '" + value.dump() + "': a switch is true or false");
    return value.get<bool>() == flag.value.negated ? std::nullopt : std::optional<std::string>("");
  }
  if (value.is_boolean() && !flag.value.alone.empty())
    return value.get<bool>() ? std::optional(flag.value.alone) : std::nullopt;
  if (value.is_boolean()) throw UsageError(name + " is " + value.dump() + ", must be " + flag.value.word);
  if (!value.is_array()) return word_of(value);
  std::vector<std::string> words;
  for (const nlohmann::json& one : value) words.push_back(word_of(one));
  return base::join(words, ",");
}

// From the last file to the first, but what is `taken`: by then, or by command line and environment.
std::vector<Setting> read_files(const Table& table, const std::vector<FlagFile>& files, std::set<const Flag*> taken) {
  std::vector<Setting> settings;
  for (auto file = files.rbegin(); file != files.rend(); ++file)
    for (const auto& [key, json] : file->values) {
      const Flag& flag = find_key(table, key, file->name);
      if (!taken.insert(&flag).second) continue;
      const std::string name = file->name + ": " + key;
      if (const auto value = value_in_file(flag, name, nlohmann::json::parse(json)))
        settings.push_back({&flag, name, *value});
    }
  return settings;
}

void apply(const std::vector<Setting>& settings, Source source, Parsed& parsed) {
  for (const Setting& setting : settings) {
    setting.flag->value.read(setting.name, setting.value);
    parsed.sources[name_of(*setting.flag)].push_back(source);
  }
}

// What the line sets. Where a flag may be given several times, a later word may take a switch back.
std::vector<Setting> set_by(const Line& line) {
  std::vector<Setting> set;
  for (const Setting& setting : line.settings) {
    if (!setting.is_off)
      set.push_back(setting);
    else
      std::erase_if(set, [&](const Setting& other) { return other.flag == setting.flag; });
  }
  return set;
}

void check_line(const Table& table, const Line& line) {
  for (const Setting& setting : line.settings) {
    const auto times = std::ranges::count(line.settings, setting.flag, &Setting::flag);
    if (!table.repeats && times > 1)
      throw UsageError(name_of(*setting.flag) + " is given " + std::to_string(times) + " times");
  }
  if (table.operands == Operands::none && !line.operands.empty())
    throw UsageError("unexpected argument '" + line.operands.front() + "': every value follows a flag");
}

}  // namespace

Parsed parse(const Table& table, const std::vector<std::string>& words, const GetEnv& get,
             const std::vector<FlagFile>& files) {
  Parsed parsed;
  for (const Group& group : table.groups)
    for (const Flag& flag : group.flags) parsed.sources[name_of(flag)];
  try {
    const Line line = read_line(table, words);
    parsed.text = line.text;
    parsed.operands = line.operands;
    if (!parsed.text.empty()) return parsed;
    if (line.wrong) throw *line.wrong;
    const std::vector<Setting> variables = read_environment(table, line, get);
    std::set<const Flag*> taken = set_in_environment(table, get);
    for (const Setting& setting : line.settings) taken.insert(setting.flag);
    apply(read_files(table, files, std::move(taken)), Source::file, parsed);
    apply(variables, Source::environment, parsed);
    apply(set_by(line), Source::command_line, parsed);
    check_line(table, line);
  } catch (const UsageError& error) {
    throw UsageError(table.prefix + error.what());
  }
  return parsed;
}

}  // namespace lockstep::flags
