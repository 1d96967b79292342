#include "lockstep/base/text.h"
#include "lockstep/flags/completion.h"

namespace lockstep::flags::detail {
namespace {

constexpr const char* kFishBegin = R"sh(# fish completion of NAME, made by: NAME completion fish

# Whether the words behind the program begin with these.
function __NAME_in
    set -l words (commandline -opc)
    set -e words[1]
    set -l count (count $argv)
    test $count -eq 0; and return 0
    test "$words[1..$count]" = "$argv"
end

# Whether they are these.
function __NAME_at
    set -l words (commandline -opc)
    set -e words[1]
    test "$words" = "$argv"
end

complete -c NAME -f
)sh";

std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string options_of(Follows what, const std::vector<std::string>& choices) {
  switch (what) {
    case Follows::choices: return " -x -a " + fish_quoted(base::join(choices, " "));
    case Follows::files: return " -r -F";
    case Follows::folders: return " -x -a '(__fish_complete_directories)'";
    case Follows::anything: return " -x";
    default: return "";
  }
}

// "complete -c lockstep -n '__lockstep_in train'", by which each line of a command begins. A command that has others
// has its flags where no other stands yet.
std::string begin_of(const Place& place, const std::string& program) {
  const std::string words = place.path.substr(program.size());
  const std::string where = place.command->commands.empty() ? "_in" : "_at";
  return "complete -c " + program + " -n " + fish_quoted("__" + program + where + words);
}

std::string flag_line(const Flag& flag) {
  const std::string brief = short_name_of(flag);
  std::string line = brief.empty() ? "" : " -s " + brief.substr(1);
  line += " -l " + name_of(flag).substr(2) + options_of(follows(flag.value), choices_of(flag.value));
  return line + (flag.help.empty() ? "" : " -d " + fish_quoted(flag.help)) + "\n";
}

std::string command_lines(const Place& place, const std::string& program) {
  const Command& command = *place.command;
  const std::string begin = begin_of(place, program);
  std::string lines = "\n";
  for (const Command& below : command.commands)
    lines += begin + " -a " + fish_quoted(below.name) + " -d " + fish_quoted(below.summary) + "\n";
  for (const Flag& flag : all_flags(command.table)) lines += begin + flag_line(flag);
  if (!command.words.empty()) lines += begin + " -a " + fish_quoted(base::join(command.words, " ")) + "\n";
  if (follows(command) == Follows::files) lines += begin + " -F\n";
  return lines;
}

}  // namespace

std::string fish_completion(const Command& root) {
  std::string text = replaced(kFishBegin, "NAME", root.name);
  for (const Place& place : places_of(root)) text += command_lines(place, root.name);
  return text;
}

}  // namespace lockstep::flags::detail
