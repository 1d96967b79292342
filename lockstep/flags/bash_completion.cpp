#include "lockstep/base/text.h"
#include "lockstep/flags/completion.h"

namespace lockstep::flags::detail {
namespace {

// Bash cuts words at "=", which is then a word of its own. Underscores in a flag's name are dashes.
constexpr const char* kBashBegin = R"sh(# bash completion of NAME, made by: NAME completion bash

# What follows the flag "COMMAND --flag", in $kind and $choices; fails when that is no value.
_NAME_value() {
  case $1 in
)sh";

constexpr const char* kBashWords = R"sh(    *) return 1 ;;
  esac
}

_NAME() {
  local current=${COMP_WORDS[COMP_CWORD]} command=NAME previous= word= flags= kind= choices=
  COMPREPLY=()
  [[ $current == '=' ]] && current=
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $word == '=' ]] && continue
    if ! _NAME_value "$command $previous"; then
      case "$command $word" in
)sh";

constexpr const char* kBashOperands = R"sh(        *' -'*) word=${word//_/-} ;;
      esac
    fi
    previous=$word
  done
  kind= choices=
  if ! _NAME_value "$command $previous"; then
    case $command in
)sh";

constexpr const char* kBashEnd = R"sh(    esac
    [[ $current == -* ]] && kind=choices choices=$flags current=${current//_/-}
  fi
  case $kind in
    choices) COMPREPLY=($(compgen -W "$choices" -- "$current")) ;;
    files) compopt -o default ;;
    folders) compopt -o dirnames ;;
  esac
}

complete -F _NAME NAME
)sh";

std::string bash_quoted(const std::string& text) { return "'" + text + "'"; }

std::string kind_of(Follows what, const std::vector<std::string>& choices) {
  switch (what) {
    case Follows::choices:
      return "kind=choices choices=" + bash_quoted(base::join(choices, " "));
    case Follows::files:
      return "kind=files";
    case Follows::folders:
      return "kind=folders";
    default:
      return "kind=";
  }
}

// A line of _NAME_value() for each flag that takes a value.
std::string value_lines(const Place& place) {
  std::string lines;
  for (const Flag& flag : all_flags(place.command->table)) {
    if (follows(flag.value) == Follows::nothing) continue;
    std::string pattern = bash_quoted(place.path + " " + name_of(flag));
    if (const std::string brief = short_name_of(flag); !brief.empty())
      pattern = bash_quoted(place.path + " " + brief) + "|" + pattern;
    lines += "    " + pattern + ") " + kind_of(follows(flag.value), choices_of(flag.value)) + " ;;\n";
  }
  return lines;
}

// What a word that is no value does: goes down to a command, or begins a program, whose words are its own.
std::string word_lines(const Place& place) {
  std::string lines;
  for (const Command& below : place.command->commands)
    lines += "        " + bash_quoted(place.path + " " + below.name) + ") command+=\" $word\" ;;\n";
  if (place.command->table.operands != Operands::program) return lines;
  const std::string line = ") compopt -o default; return ;;\n";
  lines += "        " + bash_quoted(place.path + " --") + line;
  return lines + "        " + bash_quoted(place.path + " ") + "[!-]*" + line;
}

// What may stand where no value does.
std::string operand_line(const Place& place) {
  const Command& command = *place.command;
  const std::string flags = bash_quoted(base::join(names_of(command.table), " "));
  const Follows what = follows(command);
  std::string line = "      " + bash_quoted(place.path) + ") flags=" + flags + "; ";
  if (what == Follows::nothing) return line + "kind=choices; choices=$flags ;;\n";
  return line + kind_of(what, command.commands.empty() ? command.words : names_of(command)) + " ;;\n";
}

}  // namespace

std::string bash_completion(const Command& root) {
  std::string values, words, operands;
  for (const Place& place : places_of(root)) {
    values += value_lines(place);
    words += word_lines(place);
    operands += operand_line(place);
  }
  const auto named = [&](const char* text) { return replaced(text, "NAME", root.name); };
  return named(kBashBegin) + values + named(kBashWords) + words + named(kBashOperands) + operands + named(kBashEnd);
}

}  // namespace lockstep::flags::detail
