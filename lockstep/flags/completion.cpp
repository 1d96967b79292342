#include "lockstep/flags/completion.h"

namespace lockstep::flags {
namespace detail {

Follows follows(const Value& value) {
  if (value.word.empty()) return Follows::nothing;
  if (!value.choices.empty()) return Follows::choices;
  if (value.word == "DIR" || value.word == "FOLDER") return Follows::folders;
  return value.word == "FILE" ? Follows::files : Follows::anything;
}

std::vector<std::string> choices_of(const Value& value) {
  std::vector<std::string> names(value.choices.empty() ? 0 : 1);
  for (const char c : value.choices) {
    if (c == '|' || c == ',')
      names.emplace_back();
    else
      names.back() += c;
  }
  return names;
}

Follows follows(const Command& command) {
  if (!command.commands.empty() || !command.words.empty()) return Follows::choices;
  return command.table.operands == Operands::none ? Follows::nothing : Follows::files;
}

std::string short_name_of(const Flag& flag) {
  const std::string name = name_of(flag);
  return flag.names.size() > name.size() ? flag.names.substr(0, flag.names.find(',')) : "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace detail

std::string completion(const Command& root, Shell shell) {
  if (shell == Shell::bash) return detail::bash_completion(root);
  return shell == Shell::zsh ? detail::zsh_completion(root) : detail::fish_completion(root);
}

}  // namespace lockstep::flags
