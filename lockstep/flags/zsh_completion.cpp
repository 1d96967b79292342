#include "lockstep/base/text.h"
#include "lockstep/flags/completion.h"

namespace lockstep::flags::detail {
namespace {

// Read by the completion system, the file is the body of _NAME, which then has to run; read by `source`, it says what
// it completes.
constexpr const char* kZshBegin = "#compdef NAME\n# zsh completion of NAME, made by: NAME completion zsh\n";
constexpr const char* kZshEnd = R"sh(
if [[ $funcstack[1] == _NAME ]]; then
  _NAME "$@"
else
  compdef _NAME NAME
fi
)sh";

// Of a command that has others: their list, and then their own.
constexpr const char* kZshChoice = R"sh(  case $state in
    command)
      local -a commands=(
LIST      )
      _describe command commands ;;
    argument)
      case $line[1] in
CALLS      esac ;;
  esac
)sh";

// In single quotes, where _arguments reads brackets and colons.
std::string zsh_escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
      continue;
    }
    if (c == '\\' || c == '[' || c == ']' || c == ':') result += '\\';
    result += c;
  }
  return result;
}

std::string action_of(Follows what, const std::vector<std::string>& choices) {
  switch (what) {
    case Follows::choices:
      return "(" + base::join(choices, " ") + ")";
    case Follows::files:
      return "_files";
    case Follows::folders:
      return "_files -/";
    default:
      return " ";
  }
}

// "'(-b --batch-size)'{-b+,--batch-size=}'[Samples]:N: '": names that exclude each other, text, what follows.
std::string spec_of(const Flag& flag, bool repeats) {
  const std::string name = name_of(flag), brief = short_name_of(flag);
  const bool takes_value = follows(flag.value) != Follows::nothing;
  std::string text = flag.help.empty() ? "" : "[" + zsh_escaped(flag.help) + "]";
  if (takes_value)
    text += ":" + zsh_escaped(flag.value.word) + ":" + action_of(follows(flag.value), choices_of(flag.value));
  const std::string word = name + (takes_value ? "=" : "");
  if (brief.empty()) return "'" + std::string(repeats ? "*" : "") + word + text + "'";
  const std::string both = "{" + brief + (takes_value ? "+" : "") + "," + word + "}";
  return "'" + (repeats ? "*" : "(" + brief + " " + name + ")") + "'" + both + "'" + text + "'";
}

std::string operand_specs(const Command& command) {
  if (!command.commands.empty()) return " \\\n    '1:command:->command' '*::argument:->argument'";
  if (command.table.operands == Operands::program) return " \\\n    '(-):program:_files' '*::argument:_files'";
  if (follows(command) == Follows::nothing) return "";
  return " \\\n    '*:argument:" + action_of(follows(command), command.words) + "'";
}

std::string function_of(const Place& place) { return "_" + replaced(place.path, " ", "_"); }

std::string choice_of(const Place& place) {
  if (place.command->commands.empty()) return "";
  std::string list, calls;
  for (const Command& below : place.command->commands) {
    list += "        '" + below.name + ":" + replaced(below.summary, "'", "'\\''") + "'\n";
    calls += "        " + below.name + ") " + function_of(place) + "_" + below.name + " ;;\n";
  }
  return replaced(replaced(kZshChoice, "LIST", list), "CALLS", calls);
}

std::string function_text(const Place& place) {
  const Command& command = *place.command;
  std::string text = "\n" + function_of(place) + "() {\n";
  if (!command.commands.empty())
    text += "  local context state state_descr curcontext=\"$curcontext\"\n  local -a line\n  local -A opt_args\n";
  text += "  _arguments -S";
  if (!command.commands.empty()) text += " -C";
  if (command.table.operands == Operands::program) text += " -A '-*'";
  for (const Flag& flag : all_flags(command.table)) text += " \\\n    " + spec_of(flag, command.table.repeats);
  return text + operand_specs(command) + "\n" + choice_of(place) + "}\n";
}

}  // namespace

std::string zsh_completion(const Command& root) {
  std::string text = replaced(kZshBegin, "NAME", root.name);
  for (const Place& place : places_of(root)) text += function_text(place);
  return text + replaced(kZshEnd, "NAME", root.name);
}

}  // namespace lockstep::flags::detail
