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

# Whether the word behind the program is this, and no program of its own stands behind it. The other arguments are the
# flags that take a value.
function __NAME_before_program
    set -l words (commandline -opc)
    set -e words[1]
    test "$words[1]" = "$argv[1]"; or return 1
    set -e words[1]
    set -e argv[1]
    set -l value no
    for word in $words
        if test $value = yes
            set value no
        else if contains -- $word $argv
            set value yes
        else if test $word = --; or not string match -q -- '-*' $word
            return 1
        end
    end
end

complete -c NAME -f
)sh";

std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string options_of(Follows what, const std::vector<std::string>& choices) {
  switch (what) {
    case Follows::choices:
      return " -x -a " + fish_quoted(base::join(choices, " "));
    case Follows::files:
      return " -r -F";
    case Follows::folders:
      return " -x -a '(__fish_complete_directories)'";
    case Follows::anything:
      return " -x";
    default:
      return "";
  }
}

// The names of flags that take a value, each behind a blank.
std::string valued_flags(const Table& table) {
  std::string names;
  for (const Flag& flag : all_flags(table)) {
    if (follows(flag.value) == Follows::nothing) continue;
    names += " " + name_of(flag);
    if (const std::string brief = short_name_of(flag); !brief.empty()) names += " " + brief;
  }
  return names;
}

// The condition of each line of a command. A command that has others has its flags where no other stands yet; one
// that starts a program, where that does not stand yet.
std::string condition_of(const Place& place, const std::string& program) {
  const std::string words = place.path.substr(program.size());
  const Command& command = *place.command;
  if (command.table.operands == Operands::program)
    return "__" + program + "_before_program" + words + valued_flags(command.table);
  return "__" + program + (command.commands.empty() ? "_in" : "_at") + words;
}

// "complete -c lockstep -n '__lockstep_in train'", by which each line of a command begins.
std::string begin_of(const Place& place, const std::string& program) {
  return "complete -c " + program + " -n " + fish_quoted(condition_of(place, program));
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
  // What stands behind a program is that program's: files, for all that is known.
  const std::string anywhere =
      "complete -c " + program + " -n " + fish_quoted("__" + program + "_in" + place.path.substr(program.size()));
  if (follows(command) == Follows::files) lines += anywhere + " -F\n";
  return lines;
}

}  // namespace

std::string fish_completion(const Command& root) {
  std::string text = replaced(kFishBegin, "NAME", root.name);
  for (const Place& place : places_of(root)) text += command_lines(place, root.name);
  return text;
}

}  // namespace lockstep::flags::detail
